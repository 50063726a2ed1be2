//! Interpreters that nobody built: what is read of them is bounded, or refused.

use std::cell::Cell;
use std::io;

use crate::fake::{
    BASE, BLOCK, CODE, CODE_TYPE, FILE, FRAME, FRAMES, Fake, INTERPRETER, LINES, NAME, RUNTIME,
    STATE,
};
use crate::layout::Entries;
use crate::memory::{Memory, Unread};
use crate::{Code, End, Refusal, Runtime, Version, walk};

const MINORS: [u8; 7] = [8, 9, 10, 11, 12, 13, 14];

fn found(fake: &Fake) -> Runtime {
    Runtime::find(fake)
        .expect("a known one")
        .expect("an interpreter")
}

fn refusal(fake: &Fake) -> String {
    Runtime::find(fake).expect_err("it is refused").to_string()
}

#[test]
fn a_sound_one_is_read_in_every_version() {
    for fake in MINORS.map(Fake::new) {
        let runtime = found(&fake);
        assert_eq!(
            (runtime.version, runtime.layout),
            (fake.version, fake.layout)
        );
        assert_eq!((runtime.key, runtime.state_at()), (3, 0x310 + 56));
        let stack = walk(&fake, &runtime, STATE, 8);
        assert!(matches!(stack.end, End::Root), "{stack:?}");
        let entries: Vec<bool> = stack.frames.iter().map(|frame| frame.is_entry()).collect();
        assert_eq!(entries, [fake.version.minor < 11, true], "{}", fake.version);
        let code = Code::read(&fake, &runtime, CODE).expect("a code object");
        assert_eq!(
            (code.name.as_str(), code.file.as_str()),
            ("name", "\u{444}.py")
        );
        let lines = stack
            .frames
            .iter()
            .map(|frame| code.line(frame.instruction()));
        assert_eq!(lines.collect::<Vec<_>>(), [Some(1000), Some(1007)]);
        let gil = runtime.gil(&fake, INTERPRETER).expect("a lock");
        assert_eq!((gil.holder, gil.is_locked), (STATE, true));
        assert_eq!(runtime.gils(&fake), [gil]);
        for frame in &stack.frames {
            assert_eq!((frame.code, frame.checksum()), (CODE, code.checksum));
        }
    }
}

#[test]
fn versions_and_builds_that_nobody_knows_are_refused() {
    for minor in [0, 7, 15, 255] {
        let mut fake = Fake::new(11);
        fake.version = Version {
            minor,
            micro: Some(1),
        };
        assert_eq!(refusal(&fake), format!("Python 3.{minor}.1 is not known"));
    }
    let mut fake = Fake::new(13);
    fake.set(RUNTIME, 16, 1);
    assert_eq!(
        refusal(&fake),
        "Python 3.13.0 without the global lock is not known"
    );
    for (what, offset) in [
        ("the table of offsets", 0),
        ("the table of offsets", 8),
        ("an offset", 40),
    ] {
        let mut fake = Fake::new(14);
        fake.set(RUNTIME, offset, u64::MAX);
        let expected = format!("an unknown build of Python 3.14.0: {what} differs");
        assert_eq!(refusal(&fake), expected);
    }
    for fake in MINORS.map(Fake::new) {
        for (name, _) in crate::members::expected(&fake.layout) {
            let mut fake = Fake::new(fake.version.minor);
            let at = fake
                .bytes
                .windows(name.len())
                .position(|part| part == name.as_bytes());
            fake.bytes[at.expect("a name")] = b'_';
            let expected = format!(
                "an unknown build of Python {}: {name} differs",
                fake.version
            );
            assert_eq!(refusal(&fake), expected);
        }
        let mut fake = Fake::new(fake.version.minor);
        fake.set(CODE_TYPE, 32, 100);
        assert!(refusal(&fake).ends_with("the size of code objects differs"));
    }
}

#[test]
fn an_interpreter_that_has_not_begun_may_begin() {
    for fake in MINORS.map(Fake::new) {
        let (minor, layout) = (fake.version.minor, fake.layout);
        for (address, offset) in [
            (RUNTIME, layout.key),
            (RUNTIME, layout.interpreters),
            (BLOCK, 0x310 + 56),
        ] {
            let mut fake = Fake::new(minor);
            fake.set(address, offset, 0);
            let refusal = Runtime::find(&fake).expect_err("it is refused");
            assert!(refusal.may_pass(), "{refusal}");
        }
        let mut fake = Fake::new(minor);
        fake.put(RUNTIME + u64::from(layout.key) + 4, &[32, 0, 0, 0]);
        assert!(matches!(Runtime::find(&fake), Err(Refusal::Key(32))));
    }
}

#[test]
fn circles_and_endless_lists_end() {
    for fake in MINORS.map(Fake::new) {
        let mut fake = Fake::new(fake.version.minor);
        let runtime = found(&fake);
        let layout = fake.layout;
        fake.set(FRAMES, layout.previous, FRAMES);
        let stack = walk(&fake, &runtime, STATE, 128);
        assert!(matches!(stack.end, End::TooDeep));
        assert_eq!(stack.frames.len(), 128);
        if layout.entries == Entries::Between {
            fake.put(FRAMES + u64::from(layout.mark), &[layout.marked]);
            let stack = walk(&fake, &runtime, STATE, 128);
            assert!(matches!(stack.end, End::TooDeep));
            assert_eq!(stack.frames.len(), 0);
        }
        fake.set(STATE, layout.next_thread, STATE);
        fake.set(INTERPRETER, layout.next_interpreter, INTERPRETER);
        assert_eq!(runtime.threads(&fake).len(), 8192);
        fake.set(BLOCK, 0x10, 1);
        assert!(matches!(Runtime::find(&fake), Err(Refusal::NoThread)));
    }
}

#[test]
fn frames_that_make_no_sense_end_a_walk() {
    for fake in MINORS.map(Fake::new) {
        let mut fake = Fake::new(fake.version.minor);
        let runtime = found(&fake);
        for place in [8, u64::MAX - 8, BASE - 1] {
            fake.set(FRAMES, fake.layout.previous, place);
            let stack = walk(&fake, &runtime, STATE, 8);
            assert!(matches!(stack.end, End::Unread(_)));
            assert_eq!(stack.frames.len(), 1);
        }
        fake.set(FRAMES, fake.layout.previous, FRAMES + FRAME);
        fake.set(FRAMES + FRAME, fake.layout.code, 16);
        let stack = walk(&fake, &runtime, STATE, 8);
        assert!(matches!(stack.end, End::Unread(_)));
        assert_eq!(stack.frames.len(), 1);
    }
}

#[test]
fn absurd_lengths_are_cut_or_refused() {
    for fake in MINORS.map(Fake::new) {
        let mut fake = Fake::new(fake.version.minor);
        let runtime = found(&fake);
        let malformed = |fake: &Fake| match Code::read(fake, &runtime, CODE) {
            Err(Unread::Malformed(what)) => what,
            other => panic!("{other:?}"),
        };
        // A string that claims more than there is, and a table that does.
        fake.set(NAME, 16, i64::MAX as u64);
        let code = Code::read(&fake, &runtime, CODE).expect("a code object");
        assert_eq!(code.name.chars().count(), 1024);
        fake.set(NAME, 16, u64::MAX);
        assert_eq!(malformed(&fake), "string");
        fake.set(NAME, 16, 4);
        fake.set(LINES, 16, u64::MAX);
        let code = Code::read(&fake, &runtime, CODE).expect("a code object");
        assert!(
            code.line(u32::from(fake.layout.instructions))
                .is_none_or(|line| line == 1000)
        );
        fake.set(LINES, 16, 1 << 20);
        assert!(matches!(
            Code::read(&fake, &runtime, CODE),
            Err(Unread::Memory(_))
        ));
        fake.set(LINES, 16, 4);
        for state in [0, 1 << 5, 3 << 2 | 1 << 5, 1 << 2, 2 << 2 | 1 << 5 | 1 << 6] {
            fake.set(FILE, 32, state);
            assert_eq!(malformed(&fake), "string");
        }
        fake.set(CODE, fake.layout.object_type, NAME);
        assert_eq!(malformed(&fake), "code object");
    }
}

#[test]
fn whatever_is_damaged_there_is_an_end() {
    let mut number = 1_u64;
    let mut random = |below: usize| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (number >> 33) as usize % below
    };
    for round in 0..4000 {
        let mut fake = Fake::new(MINORS[round % MINORS.len()]);
        let runtime = found(&fake);
        for _ in 0..=random(6) {
            let at = random(fake.bytes.len() / 8) * 8;
            let value = match random(4) {
                0 => u64::MAX,
                1 => BASE + random(fake.bytes.len()) as u64,
                2 => random(1 << 16) as u64,
                _ => 0,
            };
            fake.put(BASE + at as u64, &value.to_le_bytes());
        }
        for runtime in [Some(runtime), Runtime::find(&fake).ok().flatten()]
            .into_iter()
            .flatten()
        {
            let stack = walk(&fake, &runtime, STATE, 128);
            assert!(stack.frames.len() <= 128);
            for frame in stack.frames {
                if let Ok(code) = Code::read(&fake, &runtime, frame.code) {
                    assert!(code.name.chars().count() <= 1024);
                    code.line(frame.instruction());
                }
            }
        }
    }
}

/// The fuzzer begins with these, behind a byte for the version. A layout that changes changes them.
#[test]
fn the_fuzzers_corpus_holds_sound_ones() {
    for minor in [9, 10, 11, 12, 13, 14] {
        let path = format!(
            "{}/../../fuzz/corpus/python/3.{minor}",
            env!("CARGO_MANIFEST_DIR")
        );
        let kept = std::fs::read(path).expect("a file");
        assert!(
            kept == [&[minor], &Fake::new(minor).bytes[..]].concat(),
            "3.{minor}"
        );
    }
}

/// Memory of which four bytes are others whenever they are read.
struct Changing<'a> {
    fake: &'a Fake,
    address: u64,
    reads: Cell<u32>,
}

impl Memory for Changing<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fake.read(address, buffer)?;
        for (byte, at) in buffer[..length].iter_mut().zip(address..) {
            if let Some(index) = at.checked_sub(self.address).filter(|index| *index < 4) {
                *byte ^= self.reads.get().to_le_bytes()[index as usize];
            }
        }
        self.reads.set(self.reads.get() + 1);
        Ok(length)
    }
}

#[test]
fn code_that_runs_is_told_from_code_that_is_replaced() {
    for fake in MINORS.map(Fake::new) {
        let (runtime, layout) = (found(&fake), fake.layout);
        let pointers = [layout.object_type, layout.name, layout.file, layout.lines];
        for offset in (0..layout.instructions).step_by(4) {
            let address = CODE + u64::from(offset);
            let memory = Changing {
                fake: &fake,
                address,
                reads: Cell::new(0),
            };
            let read = Code::read(&memory, &runtime, CODE);
            let is_summed = (layout.checksum..layout.checksum + 28).contains(&offset);
            let is_followed = pointers
                .iter()
                .any(|pointer| [0, 4].contains(&(offset.wrapping_sub(*pointer))));
            // The interpreter counts calls, keeps what it has learned, and so on, in all others.
            assert_eq!(
                read.is_ok(),
                !is_summed && !is_followed,
                "{} {offset}",
                fake.version
            );
        }
    }
}
