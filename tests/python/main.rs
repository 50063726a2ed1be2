//! Python's frames as read from outside, held to what the interpreter itself says of them.

mod interpreters;
mod native;
mod outside;
mod program;

use std::collections::BTreeMap;

use interpreters::{Interpreter, all};
use outside::Outside;
use program::{Said, Standing};
use python::{Code, End, Gil, Runtime, Stack, Thread, walk};

/// More than the program's deepest thread has.
const MOST: usize = 4000;

/// Functions that C code calls in the program, in every version.
const FROM_C: [&str; 4] = ["called_from_c", "key_from_c", "_bootstrap", "<module>"];
/// Functions there and what they call plainly: from 3.11 on without any C code between.
const PLAIN: [(&str, &str); 6] = [
    ("called_from_c", "stand"),
    ("in_handlers", "stand"),
    ("generator", "stand"),
    ("deep", "deep"),
    ("größe", "имя"),
    ("_bootstrap", "_bootstrap_inner"),
];

fn found(outside: &Outside) -> Runtime {
    let found = Runtime::find(outside).expect("a known one");
    found.expect("an interpreter")
}

fn stacks(outside: &Outside) -> (Runtime, BTreeMap<u64, Stack>) {
    let runtime = found(outside);
    let threads = runtime.threads(outside);
    let bound = threads
        .iter()
        .filter(|thread| runtime.is_bound(outside, thread));
    let stacks = bound.map(|thread| {
        let tid = thread.tid.unwrap_or_else(|| outside.tid_of(thread.block));
        (tid, walk(outside, &runtime, thread.state, MOST))
    });
    let stacks = stacks.collect();
    (runtime, stacks)
}

/// The functions' frames, as the program says them.
fn read(outside: &Outside, runtime: &Runtime, stack: &Stack) -> Vec<Said> {
    let mut codes: BTreeMap<u64, Code> = BTreeMap::new();
    let frames = stack.frames.iter().filter_map(|frame| {
        let code = codes
            .entry(frame.code)
            .or_insert_with(|| Code::read(outside, runtime, frame.code).expect("a code object"));
        assert_eq!(code.checksum, frame.checksum(), "{}", code.name);
        (!code.is_internal).then(|| Said {
            code: frame.code,
            name: code.name.clone(),
            file: code.file.clone(),
            first_line: code.first_line.into(),
            line: code.line(frame.instruction()).map(u64::from),
        })
    });
    frames.collect()
}

fn check(interpreter: &Interpreter) {
    let standing = Standing::start(interpreter);
    let said = standing.ask();
    let (runtime, stacks) = stacks(&standing.outside);
    assert!(
        interpreter
            .version
            .starts_with(&runtime.version.to_string()),
        "{runtime:?}"
    );
    assert_eq!(said.len(), program::THREADS);
    for (tid, said) in &said {
        let stack = stacks.get(tid).expect("the thread");
        assert!(matches!(stack.end, End::Root), "{:?}", stack.end);
        let read = read(&standing.outside, &runtime, stack);
        for (read, said) in read.iter().zip(said) {
            assert_eq!(read, said);
        }
        assert_eq!(read.len(), said.len());
        check_entries(&standing.outside, &runtime, stack);
    }
    assert!(said.values().any(|frames| frames.len() > 3000));
    assert_eq!(standing.ask(), said, "they stood still");
}

/// Marks of the frames that C code called, by the names that the program gives such functions.
fn check_entries(outside: &Outside, runtime: &Runtime, stack: &Stack) {
    let mut calling: Option<String> = None;
    let mut plain = 0;
    for frame in stack.frames.iter().rev() {
        let code = Code::read(outside, runtime, frame.code).expect("a code object");
        let name = code.name.rsplit('.').next().expect("a part").to_owned();
        let is_plain = |(caller, called): &(&str, &str)| {
            calling.as_deref() == Some(*caller) && name == *called
        };
        if FROM_C.contains(&name.as_str()) || runtime.version.minor < 11 {
            assert!(frame.is_entry(), "{}", code.name);
        } else if PLAIN.iter().any(is_plain) {
            plain += 1;
            assert!(!frame.is_entry(), "{}", code.name);
        }
        calling = Some(name);
    }
    assert!(plain > 0 || runtime.version.minor < 11);
}

#[test]
fn frames_are_those_that_the_interpreter_says() {
    for interpreter in all() {
        println!("{}", interpreter.words.join(" "));
        check(&interpreter);
    }
}

#[test]
fn a_walk_is_cut_where_it_is_told_to() {
    let interpreter = &all()[0];
    let standing = Standing::start(interpreter);
    standing.ask();
    let (runtime, _) = stacks(&standing.outside);
    let threads = runtime.threads(&standing.outside);
    let cut = threads
        .iter()
        .map(|thread| walk(&standing.outside, &runtime, thread.state, 128));
    let cut: Vec<Stack> = cut
        .filter(|stack| matches!(stack.end, End::TooDeep))
        .collect();
    assert_eq!(cut.len(), 1, "one thread is deeper");
    assert_eq!(cut[0].frames.len(), 128);
}

/// Each native frame of the loop, or of a part that the compiler moved away, has one entry frame.
#[test]
fn entry_frames_are_as_many_as_native_frames_of_the_loop() {
    for interpreter in all() {
        let standing = Standing::start(&interpreter);
        standing.ask();
        let (runtime, stacks) = stacks(&standing.outside);
        let native = native::stacks(&interpreter, &standing.outside);
        // Only root may look at a process that it did not start, where Yama says so.
        if native.is_empty() && std::env::var("REQUIRE_LIVE").as_deref() != Ok("1") {
            eprintln!("SKIPPED: gdb cannot look at another process");
            return;
        }
        let is_in_loop = |address: &&u64| {
            let call = address.wrapping_sub(1);
            runtime.loops.iter().any(|range| range.contains(&call))
        };
        let mut compared = 0;
        for (tid, stack) in &stacks {
            let native = &native[tid];
            // The deep one.
            if stack.frames.len() > native::MOST {
                continue;
            }
            compared += 1;
            let entries = stack.frames.iter().filter(|frame| frame.is_entry()).count();
            let loops = native.iter().filter(is_in_loop).count();
            assert_eq!(entries, loops, "{} {tid}: {native:x?}", interpreter.version);
        }
        assert!(compared >= program::THREADS, "{}", interpreter.version);
    }
}

#[test]
fn code_that_replaced_other_code_is_told_from_it() {
    for interpreter in all() {
        let standing = Standing::start(&interpreter);
        standing.ask();
        let runtime = found(&standing.outside);
        let read = |address| Code::read(&standing.outside, &runtime, address).expect("code");
        let (place, name) = standing.replace();
        let before = read(place);
        assert_eq!(before.name, name);
        for _ in 0..8 {
            let (again, name) = standing.replace();
            let code = read(again);
            assert_eq!((again, &code.name), (place, &name));
            // Before there is nothing that two of the same shape would differ in.
            if runtime.version.minor >= 12 {
                assert_ne!(code.checksum, before.checksum, "{}", interpreter.version);
            }
        }
    }
}

/// A thread that prints a line has let go of the lock for that: it takes it again some time after the line is there.
#[test]
fn the_global_lock_is_held_by_who_says_so() {
    for interpreter in all() {
        let standing = Standing::start(&interpreter);
        standing.ask();
        let outside = &standing.outside;
        let runtime = found(outside);
        let gil = |interpreter| runtime.gil(outside, interpreter).expect("a lock");
        let threads = runtime.threads(outside);
        let holds = standing.hold();
        let tid = |thread: &Thread| thread.tid.unwrap_or_else(|| outside.tid_of(thread.block));
        let holder = threads
            .iter()
            .find(|thread| tid(thread) == holds)
            .expect("a thread");
        let held = eventually(|| Some(gil(holder.interpreter)).filter(|gil| gil.is_locked));
        assert_eq!(held.holder, holder.state, "{}", interpreter.version);
        standing.release();
        let free = eventually(|| Some(gil(holder.interpreter)).filter(|gil| !gil.is_locked));
        assert_eq!(
            free,
            Gil {
                is_locked: false,
                ..held
            }
        );
    }
}

/// The state that comes to be in the end.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        std::thread::yield_now();
    }
}
