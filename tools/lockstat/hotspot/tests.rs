//! A machine made of bytes.

use std::cell::RefCell;

use super::*;

/// Words and text by their addresses; what has none is not there.
#[derive(Default)]
pub(crate) struct Memory {
    bytes: RefCell<Vec<(u64, Vec<u8>)>>,
    next: RefCell<u64>,
}

pub(crate) const DESCRIBED_AT: u64 = 0x1000;
const TABLE: u64 = 0x10_000;
const NAMES: u64 = 0x20_000;

impl Memory {
    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.bytes.borrow_mut().push((address, bytes.to_vec()));
    }

    pub(crate) fn put_word(&self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }

    /// A name, where no other one is.
    fn name(&self, name: &str) -> u64 {
        let mut next = self.next.borrow_mut();
        let at = NAMES + *next;
        *next += name.len() as u64 + 1;
        self.put(at, &[name.as_bytes(), &[0]].concat());
        at
    }

    /// The last that was put somewhere is there; holes between are zeros.
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let all = self.bytes.borrow();
        let end = all.iter().map(|(at, bytes)| at + bytes.len() as u64).max();
        if address < DESCRIBED_AT || address >= end.unwrap_or(0) {
            return false;
        }
        buffer.fill(0);
        for (at, bytes) in all.iter() {
            for (byte, place) in bytes.iter().zip(*at..) {
                let inside = place.checked_sub(address).map(|offset| offset as usize);
                if let Some(target) = inside.and_then(|offset| buffer.get_mut(offset)) {
                    *target = *byte;
                }
            }
        }
        true
    }

    /// A table with an entry for each field.
    pub(crate) fn describe(&self, fields: &[(&str, &str, bool, u64)]) {
        self.put_word(DESCRIBED_AT, TABLE);
        for (number, (kind, name, is_static, place)) in fields.iter().enumerate() {
            let entry = TABLE + 48 * number as u64;
            self.put_word(entry, self.name(kind));
            self.put_word(entry + 8, self.name(name));
            self.put_word(entry + 16, self.name("void*"));
            self.put_word(entry + 24, u64::from(*is_static));
            self.put_word(entry + if *is_static { 40 } else { 32 }, *place);
        }
    }
}

const LIST: u64 = 0x30_000;
const FIELDS: [(&str, &str, bool, u64); 9] = [
    ("ThreadsSMRSupport", "_java_thread_list", true, LIST),
    ("ThreadsList", "_length", false, 0),
    ("ThreadsList", "_threads", false, 8),
    ("JavaThread", "_osthread", false, 0),
    ("OSThread", "_thread_id", false, 0),
    ("JavaThread", "_current_pending_monitor", false, 8),
    ("JavaThread", "_stack_base", false, 16),
    ("JavaThread", "_stack_size", false, 24),
    ("ObjectMonitor", "_owner", false, 8),
];
const MONITOR: u64 = 0x40_000;

/// Two threads, the second of which waits for the monitor.
pub(crate) fn machine() -> Memory {
    let memory = Memory::default();
    memory.describe(&FIELDS);
    memory.put_word(LIST, LIST + 8);
    memory.put_word(LIST + 8, 2);
    memory.put_word(LIST + 16, LIST + 64);
    for (number, tid) in [(0, 11), (1, 12)] {
        let thread = LIST + 0x100 * (1 + number);
        memory.put_word(LIST + 64 + 8 * number, thread);
        memory.put_word(thread, thread + 0x80);
        memory.put_word(thread + 0x80, tid);
        memory.put_word(thread + 8, number * MONITOR);
        memory.put_word(thread + 16, 0x90_000 + number * 0x10_000);
        memory.put_word(thread + 24, 0x1000);
    }
    memory
}

#[test]
fn a_monitor_has_the_thread_whose_address_it_has_or_whose_stack_its_lock_is_on() {
    for (owner, tid) in [
        (LIST + 0x100, Some(11)),
        (0x8f_ff0, Some(11)),
        (0x9f_000, Some(12)),
        (0x90_000, None),
        (0, None),
        (ANONYMOUS, None),
    ] {
        let memory = machine();
        memory.put_word(MONITOR + 8, owner);
        let read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
        let description = Description::read(DESCRIBED_AT, &read).expect("all that is needed");
        let machine = Machine::of(&description, &read);
        let threads = machine.threads().expect("a list");
        let awaited: Vec<_> = threads
            .iter()
            .map(|thread| (thread.tid, thread.awaited))
            .collect();
        assert_eq!(awaited, [(11, None), (12, Some(MONITOR))]);
        let found = machine.owner(MONITOR, &threads).map(|owner| owner.tid);
        assert_eq!(found, tid, "{owner:#x}");
    }
}

#[test]
fn a_machine_that_makes_no_sense_is_none_or_has_nobody() {
    let memory = Memory::default();
    memory.describe(&FIELDS[..5]);
    let read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
    assert!(
        Description::read(DESCRIBED_AT, &read).is_none(),
        "fields are missing"
    );
    assert!(Description::read(8, &read).is_none(), "nothing is there");

    // Addresses beyond all that there is, and more threads than anybody has.
    for (address, word) in [
        (LIST, u64::MAX),
        (LIST + 8, u64::MAX),
        (LIST + 16, u64::MAX - 4),
        (LIST + 64, u64::MAX),
    ] {
        let memory = machine();
        memory.put_word(address, word);
        let read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
        let description = Description::read(DESCRIBED_AT, &read).expect("all that is needed");
        let machine = Machine::of(&description, &read);
        let threads = machine.threads().unwrap_or_default();
        assert!(threads.len() <= MOST_THREADS, "{word:#x} at {address:#x}");
        assert_eq!(machine.owner(u64::MAX, &threads), None);
        assert_eq!(machine.class(u64::MAX), None);
    }

    // A table without an end.
    let memory = Memory::default();
    memory.put_word(DESCRIBED_AT, TABLE);
    let name = memory.name("ThreadsList");
    let read = |address: u64, buffer: &mut [u8]| {
        buffer.fill(0x41);
        for (at, byte) in buffer.iter_mut().enumerate().filter(|_| address >= TABLE) {
            *byte = name.to_le_bytes()[at % 8];
        }
        memory.read(address, buffer) || address >= TABLE
    };
    assert!(Description::read(DESCRIBED_AT, &read).is_none());
}
