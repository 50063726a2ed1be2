//! Frames of Python behind a stack: those that a walk of the same memory in user space finds, by random layouts and in any memory.

use std::io;

use fastrand::Rng;
use python::{
    CHECKSUM_BYTES, End, Entries, Instruction, Layout, NONE, Positions, Runtime, Stack, Version,
};

use crate::TGID;
use crate::memory::Memory;
use crate::stack::AUTO;
use crate::unwinder::{MOST_DEPTH, Process, Record, Unwinder, at};

/// `MAX_PYTHON_FRAMES`.
const MOST_FRAMES: usize = 128;
/// `enum python_end`.
const ENDS: [&str; 4] = ["root", "too deep", "unread", "broken"];
const THREAD: u64 = 0x7f00_0000_1000;
const STATE: u64 = 0x5000_0000;
const HOLDER: u64 = 0x5000_8000;
const FRAMES: u64 = 0x6000_0000;
const CODES: u64 = 0x7000_0000;
const CODE_TYPE: u64 = 0x44_5566;
/// Bytes that each object has for itself.
const ROOM: u64 = 256;

/// `struct python_layout`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct BpfLayout {
    code_type: u64,
    code_mask: u64,
    state_at: i32,
    frame_at: u16,
    through_at: u16,
    code_at: u8,
    previous_at: u8,
    instruction_at: u8,
    instruction_is_index: u8,
    owner_at: u8,
    entry_value: u8,
    entry: u8,
    frame_bytes: u8,
    code_bytes: u8,
    type_at: u8,
    checked_at: u8,
    pad: [u8; 5],
}

impl python::Memory for Memory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let is_there = Memory::read(self, address, buffer);
        is_there
            .then_some(buffer.len())
            .ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Four words of a frame in an order that is anyone's.
fn layout(rng: &mut Rng) -> Layout {
    let mut places: Vec<u16> = (0..14).map(|word| word * 8).collect();
    rng.shuffle(&mut places);
    let entries = [Entries::All, Entries::Marked, Entries::Between][rng.usize(0..3)];
    let forms = [Instruction::Address, Instruction::Bytes, Instruction::Units];
    Layout {
        frame: 8 * rng.u16(0..20),
        frame_in_holder: if rng.bool() { 8 * rng.u16(0..3) } else { NONE },
        code: places[0],
        code_tag: if rng.bool() { 3 } else { 0 },
        previous: places[1],
        instruction: places[2],
        instruction_form: forms[rng.usize(0..3)],
        entries,
        mark: if entries == Entries::All {
            NONE
        } else {
            places[3] + rng.u16(0..8)
        },
        marked: rng.u8(1..4),
        checksum: 4 * rng.u16(4..24),
        object_type: 8,
        thread_id: 0,
        native_thread_id: NONE,
        next_thread: 0,
        first_line: 0,
        file: 0,
        name: 0,
        lines: 0,
        positions: Positions::Locations,
        instructions: 0,
        ascii: 0,
        wide: 0,
        interpreters: 0,
        next_interpreter: 0,
        threads: 0,
        key: 0,
        lock: 0,
        lock_is_in_runtime: false,
        frame_bytes: NONE,
    }
}

fn encoded(layout: &Layout, state_at: i32, code_type: u64) -> BpfLayout {
    let small = |offset: u16| u8::try_from(offset).expect("small");
    BpfLayout {
        code_type,
        code_mask: !u64::from(layout.code_tag),
        state_at,
        frame_at: layout.frame,
        through_at: layout.frame_in_holder,
        code_at: small(layout.code),
        previous_at: small(layout.previous),
        instruction_at: small(layout.instruction),
        instruction_is_index: u8::from(layout.instruction_form != Instruction::Address),
        owner_at: if layout.mark == NONE {
            0
        } else {
            small(layout.mark)
        },
        entry_value: layout.marked,
        entry: layout.entries as u8,
        frame_bytes: u8::try_from(layout.frame_span()).expect("small"),
        code_bytes: small(layout.checksum) + CHECKSUM_BYTES as u8,
        type_at: small(layout.object_type),
        checked_at: small(layout.checksum / 4),
        pad: [0; 5],
    }
}

/// A thread's frames, `depth` of them, none's among them; some lead back, or to where nothing is.
fn fill(rng: &mut Rng, memory: &mut Memory, layout: &Layout, depth: u64) {
    let first = if depth > 0 { FRAMES } else { 0 };
    match layout.frame_in_holder {
        NONE => memory.write_word(STATE + u64::from(layout.frame), first),
        offset => {
            memory.write_word(STATE + u64::from(layout.frame), HOLDER);
            memory.write_word(HOLDER + u64::from(offset), first);
        }
    }
    let is_odd = rng.u32(0..4) == 0;
    for number in 0..depth {
        let at = FRAMES + number * ROOM;
        let code = CODES + rng.u64(0..8) * ROOM;
        let mut bytes = [0; ROOM as usize];
        rng.fill(&mut bytes);
        memory.write(at, &bytes);
        let mut previous = if number + 1 < depth { at + ROOM } else { 0 };
        if is_odd && rng.u64(0..depth) == 0 {
            previous = [FRAMES, 1, u64::MAX, rng.u64(..)][rng.usize(0..4)];
        }
        let mut position = code + rng.u64(0..1 << 20);
        if is_odd && rng.u64(0..depth) == 0 {
            position = rng.u64(..);
        }
        memory.write_word(
            at + u64::from(layout.code),
            code | u64::from(layout.code_tag),
        );
        memory.write_word(at + u64::from(layout.previous), previous);
        memory.write_word(at + u64::from(layout.instruction), position);
        if layout.mark != NONE {
            let mark = if rng.u32(0..4) == 0 { layout.marked } else { 0 };
            memory.write(at + u64::from(layout.mark), &[mark]);
        }
    }
    for code in 0..8 {
        let mut bytes = [0; ROOM as usize];
        rng.fill(&mut bytes);
        memory.write(CODES + code * ROOM, &bytes);
        memory.write_word(CODES + code * ROOM + 8, CODE_TYPE);
    }
    if is_odd && rng.bool() {
        memory.lose(FRAMES + rng.u64(0..depth.max(1)) * ROOM + u64::from(layout.code));
    }
    if is_odd && rng.bool() {
        memory.lose(CODES + rng.u64(0..8) * ROOM + u64::from(layout.checksum));
    }
}

/// Walks the stack of a thread that is in one function without a caller; the words behind it.
fn walked(unwinder: &Unwinder, memory: &Memory, layout: BpfLayout) -> (u64, Vec<u64>, Record) {
    unwinder.forget();
    unwinder.walk_by(AUTO);
    unwinder.remember(memory);
    unwinder.host.tell("host_python", (7_u32, &layout));
    let task = unwinder.thread(TGID, 0, true, 5, 0);
    unwinder.host.tell("host_thread_pointer", (task, THREAD));
    let process = Process {
        start_stack: 5,
        python: 7,
        ..Process::default()
    };
    unwinder.process(TGID, Some(&process));
    let mut registers = [0; 21];
    registers[at::IP] = 0x1000;
    unwinder.enter(task, &registers);
    unwinder.set(1, 0, task);
    let id = unwinder.user_stack(0, task, TGID);
    let (record, [bytes, _]) = unwinder.take_sent().expect("it is new");
    assert_eq!((record.depth, record.words[0]), (1, 0x1000));
    let words = usize::try_from(bytes - crate::HEADER).expect("few") / 8 - 1;
    (id, record.words[1..=words].to_vec(), record)
}

/// The record's words for a stack of the other walk, and its end.
fn expected(stack: &Stack) -> (Vec<u64>, &'static str) {
    let words = stack
        .frames
        .iter()
        .flat_map(|frame| [frame.code, frame.word]);
    let end = match stack.end {
        End::Root => ENDS[0],
        End::TooDeep => ENDS[1],
        End::Unread(_) => ENDS[2],
    };
    (words.collect(), end)
}

#[test]
fn frames_of_python_are_those_that_the_other_walk_finds() {
    let (mut ends, mut depths) = ([0; 4], 0);
    for seed in 0..600 {
        let mut rng = Rng::with_seed(seed);
        let (layout, mut memory) = (layout(&mut rng), Memory::default());
        let depth = [0, 1, 2, rng.u64(3..40), 127, 128, 129, 170][rng.usize(0..8)];
        fill(&mut rng, &mut memory, &layout, depth);
        let state_at = rng.i32(-200..200) * 8;
        memory.write_word(THREAD.wrapping_add_signed(state_at.into()), STATE);
        let runtime = Runtime {
            version: Version {
                minor: 11,
                micro: None,
            },
            layout,
            runtime_address: 0,
            code_type: CODE_TYPE,
            key: 0,
            loops: Vec::new(),
        };
        let (frames, end) = expected(&python::walk(&memory, &runtime, STATE, MOST_FRAMES));
        let (_, words, _) = walked(&crate::unwinder(), &memory, encoded(&layout, state_at, 0));
        assert_eq!(words[1..], frames, "seed {seed}: {layout:?}");
        let said = usize::try_from(words[0] >> 16).expect("small");
        let said = if ENDS[said] == "broken" {
            "unread"
        } else {
            ENDS[said]
        };
        assert_eq!(
            (words[0] & 0xffff, said),
            (frames.len() as u64 / 2, end),
            "seed {seed}"
        );
        ends[usize::try_from(words[0] >> 16).expect("small")] += 1;
        depths += frames.len();
    }
    assert!(
        ends.iter().all(|count| *count > 5) && depths > 30_000,
        "{ends:?} {depths}"
    );
}

/// Threads that have no state have no words; what is no code object ends the walk; functions tell stacks apart.
#[test]
fn what_is_no_thread_or_no_code_is_not_walked() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(1);
    let layout = Layout {
        entries: Entries::All,
        mark: NONE,
        ..layout(&mut rng)
    };
    let mut memory = Memory::default();
    memory.write_word(THREAD + 8, 0);
    let (native, words, _) = walked(&unwinder, &memory, encoded(&layout, 8, CODE_TYPE));
    assert!(words.is_empty(), "a thread that Python does not know");
    let mut rng = Rng::with_seed(2);
    while memory.word(STATE).is_none() || memory.word(FRAMES + 2 * ROOM).is_none() {
        fill(&mut rng, &mut memory, &layout, 3);
        memory.map(STATE);
    }
    memory.write_word(THREAD + 8, STATE);
    let (one, words, record) = walked(&unwinder, &memory, encoded(&layout, 8, CODE_TYPE));
    assert_eq!((words.len(), words[0] >> 16), (7, 0), "{words:x?}");
    assert!(usize::from(record.depth) < MOST_DEPTH);
    let (other, words, _) = walked(&unwinder, &memory, encoded(&layout, 8, CODE_TYPE + 1));
    assert_eq!(words, [3 << 16], "not one frame");
    assert!(native != one && one != other && other != native, "ids");
}
