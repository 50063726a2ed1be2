use std::cell::RefCell;

use super::*;

/// Memory of a server that was made up: processes of 1 KiB, locks, and the parts of the ones in the others.
struct Memory(RefCell<Vec<u8>>);

const START: u64 = 0x7f00_0000_0000;
const PROCESSES: u64 = START + 4096;
const LOCK: u64 = START + 0x8000;
const PARTS: u64 = START + 0x9000;
/// Places in a process's structure.
const LATCH_PID: u64 = 48;
const PID: u64 = 72;
const WAIT: u64 = 120;
const EVENT: u64 = 840;

const fn process(n: u64) -> u64 {
    PROCESSES + 1024 * n
}

const fn part(n: u64) -> u64 {
    PARTS + 64 * n
}

impl Memory {
    fn put(&self, at: u64, bytes: &[u8]) {
        let from = (at - START) as usize;
        self.0.borrow_mut()[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn put_u64(&self, at: u64, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }

    fn put_u32(&self, at: u64, value: u32) {
        self.put(at, &value.to_ne_bytes());
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> bool {
        let memory = self.0.borrow();
        let from = at.checked_sub(START).map(|from| from as usize);
        let bytes = from.and_then(|from| memory.get(from..from.checked_add(buffer.len())?));
        bytes.map(|bytes| buffer.copy_from_slice(bytes)).is_some()
    }

    /// A lock of transaction 745. Process 0 has it in mode 7, process 1 in mode 1; 2, 3 and 4 wait, in that order, the last for mode 1.
    fn new() -> Self {
        let memory = Self(RefCell::new(vec![0; 0x10000]));
        memory.put_u32(LOCK, 745);
        memory.put(LOCK + 14, &[5, 1]);
        for n in 0..5 {
            memory.put_u32(process(n) + LATCH_PID, 100 + n as u32);
            memory.put_u32(process(n) + PID, 100 + n as u32);
            memory.put_u64(part(n), LOCK);
            memory.put_u64(part(n) + 8, process(n));
            memory.put_u64(part(n) + 16, process(n));
            let next = if n == 4 { LOCK + 24 } else { part(n + 1) + 32 };
            memory.put_u64(part(n) + 40, next);
        }
        memory.put_u64(LOCK + 32, part(0) + 32);
        memory.put_u32(part(0) + 24, 1 << 7);
        memory.put_u32(part(1) + 24, 1 << 1);
        memory.put_u64(LOCK + 48, process(2));
        for (n, mode) in [(2, 5), (3, 7), (4, 1)] {
            memory.put_u64(process(n) + WAIT, LOCK);
            memory.put_u64(process(n) + WAIT + 8, part(n));
            memory.put_u32(process(n) + WAIT + 16, mode);
            memory.put_u64(process(n) + WAIT + 24, 1234);
            let next = if n == 4 { LOCK + 40 } else { process(n + 1) };
            memory.put_u64(process(n) + 8, next);
        }
        memory
    }

    fn blocked(&self, n: u64) -> Option<Blocked> {
        let read = |at: u64, buffer: &mut [u8]| self.read(at, buffer);
        blocked(process(n) + EVENT, 5, 100 + n as u32, &read)
    }
}

fn by(memory: &Memory, n: u64) -> Option<(Vec<u32>, Vec<u32>)> {
    memory.blocked(n).map(|found| (found.hard, found.soft))
}

#[test]
fn those_in_the_way_have_the_lock_or_wait_in_front() {
    let memory = Memory::new();
    let first = memory.blocked(2).unwrap();
    assert_eq!(first.tag.to_string(), "transactionid 745");
    assert_eq!(first.since_us, 1234);
    assert_eq!((first.hard, first.soft), (vec![100], vec![]));
    assert_eq!(by(&memory, 3), Some((vec![100], vec![102])));
    // Nothing that is had or waited for conflicts with what it wants.
    assert_eq!(by(&memory, 4), Some((vec![], vec![])));
    assert_eq!(by(&memory, 0), None, "it waits for nothing");
}

#[test]
fn parallel_workers_are_their_leader_and_do_not_wait_for_each_other() {
    let memory = Memory::new();
    memory.put_u64(part(0) + 16, process(1));
    assert_eq!(by(&memory, 2), Some((vec![101], vec![])));
    memory.put_u64(part(2) + 16, process(1));
    assert_eq!(by(&memory, 2), Some((vec![], vec![])));
}

#[test]
fn what_does_not_fit_says_nothing() {
    let memory = Memory::new();
    let read = |at: u64, buffer: &mut [u8]| memory.read(at, buffer);
    let event = process(2) + EVENT;
    assert_eq!(blocked(event, 4, 102, &read), None, "another kind of lock");
    assert_eq!(blocked(event, 5, 999, &read), None, "nowhere its PID");
    assert_eq!(
        blocked(START + 4000, 5, 102, &read),
        None,
        "nothing in front"
    );
    for (at, value) in [
        (part(2), LOCK + 8),
        (part(2) + 8, process(2) + WAIT + 8),
        (part(2) + 8, START),
        (part(1) + 40, part(1) + 32),
        (part(1) + 40, u64::MAX - 7),
        (part(1), 0),
        (LOCK + 48, process(3)),
        (LOCK + 48, LOCK + 40),
        (LOCK + 48, 12),
        (LOCK + 32, 8),
    ] {
        let memory = Memory::new();
        memory.put_u64(at, value);
        // Behind itself it is found in no queue.
        memory.put_u64(process(4) + 8, process(3));
        assert_eq!(memory.blocked(2), None, "{at:#x}");
    }
    // A prepared transaction has no process.
    memory.put_u32(process(0) + PID, 0);
    assert_eq!(by(&memory, 2), Some((vec![], vec![])));
}

#[test]
fn locks_are_called_as_the_server_calls_them() {
    let tag = |kind| Tag {
        fields: [5, 16384, 7],
        last: 9,
        kind,
    };
    let said = [0, 4, 5, 6, 10, 77].map(|kind| tag(kind).to_string());
    let expected = [
        "relation 16384 of database 5",
        "tuple (7,9) of relation 16384",
        "transactionid 5",
        "virtualxid 5/16384",
        "advisory [5,16384,7,9]",
        "type 77",
    ];
    assert_eq!(said, expected);
}

#[test]
fn conflicts_go_both_ways() {
    for (mode, conflicts) in CONFLICTS.iter().enumerate() {
        for (other, theirs) in CONFLICTS.iter().enumerate() {
            assert_eq!(conflicts >> other & 1, theirs >> mode & 1, "{mode} {other}");
        }
    }
}
