//! Layouts of made-up machines.

use std::collections::HashMap;

use super::super::Description;
use super::super::tests::{DESCRIBED_AT, Memory};
use super::*;

const LIST: u64 = 0x30_000;
const BASE: u64 = 0x31_000;
const SHIFT: u64 = 0x31_008;
const FIELDS: [(&str, &str, bool, u64); 14] = [
    ("ThreadsSMRSupport", "_java_thread_list", true, LIST),
    ("JavaThread", "_osthread", false, 8),
    ("OSThread", "_thread_id", false, 16),
    ("JavaThread", "_current_pending_monitor", false, 24),
    ("JavaThread", "_current_waiting_monitor", false, 32),
    ("JavaThread", "_threadObj", false, 40),
    ("ObjectMonitor", "_owner", false, 64),
    ("ObjectMonitor", "_object", false, 8),
    ("oopDesc", "_metadata._klass", false, 8),
    ("Klass", "_primary_supers[0]", false, 48),
    ("Klass", "_name", false, 24),
    ("Symbol", "_length", false, 0),
    ("Symbol", "_body", false, 6),
    ("CompressedOops", "_base", true, BASE),
];
/// Places of the machine's variables, its own classes, and one of them with its name.
const VARIABLES: u64 = 0x40_000;
const KNOWN: u64 = 0x41_000;
const OWN: u64 = 0x42_000;
const NAME: u64 = 0x43_000;

struct Made {
    memory: Memory,
    variables: HashMap<&'static str, u64>,
}

impl Made {
    fn new() -> Self {
        let memory = Memory::default();
        memory.describe(&FIELDS);
        memory.put_word(LIST, LIST + 8);
        memory.put_word(BASE, 0x8_0000_0000);
        memory.put_word(SHIFT, 0);
        let mut made = Self {
            memory,
            variables: HashMap::new(),
        };
        for (name, value) in [
            (PARK_BLOCKER[0], 76),
            (NATIVE_THREAD[0], 48),
            (OWNER[1], 12),
            (SHORT_REFERENCES[0], 1),
            (NUMBERED_CLASSES[0], 1),
        ] {
            made.set(name, value);
        }
        made.variables.insert(CLASSES[0], KNOWN);
        made.memory.put_word(KNOWN + 8, OWN);
        made.memory.put_word(OWN + 24, NAME);
        made.memory.put(NAME, &(OWNABLE.len() as u16).to_le_bytes());
        let name = OWNABLE.replace('.', "/");
        made.memory.put(NAME + 6, name.as_bytes());
        made
    }

    fn set(&mut self, name: &'static str, value: u64) {
        let at = VARIABLES + 8 * self.variables.len() as u64;
        let at = *self.variables.entry(name).or_insert(at);
        self.memory.put_word(at, value);
    }

    fn layout(&self) -> Option<java_machine> {
        let read = |address: u64, buffer: &mut [u8]| self.memory.read(address, buffer);
        let description = Description::read(DESCRIBED_AT, &read).expect("all that is needed");
        let variables = &mut |name: &str| self.variables.get(name).copied();
        Machine::of(&description, &read).layout(7, variables)
    }
}

#[test]
fn a_machine_says_where_it_has_what() {
    let layout = Made::new().layout().expect("a layout");
    assert_eq!((layout.space, layout.ownable), (7, OWN));
    let of_objects = (layout.park_blocker, layout.native_thread, layout.owner);
    assert_eq!(of_objects, (76, 48, 12));
    assert_eq!((layout.object_base, layout.ancestor), (0x8_0000_0000, 56));
    assert_eq!(
        (layout.class_place, layout.has_short_references),
        (CLASS_NUMBER, 1)
    );
    assert_eq!((layout.has_colours, layout.has_numbers), (0, 0));
}

#[test]
fn a_machine_that_begins_is_looked_at_again() {
    for name in [PARK_BLOCKER[0], NATIVE_THREAD[0], OWNER[1]] {
        let mut made = Made::new();
        made.set(name, 0);
        assert!(made.layout().is_none(), "{name}");
    }
    let made = Made::new();
    made.memory.put_word(KNOWN + 8, 0);
    assert!(made.layout().is_none(), "no classes yet");
    let made = Made::new();
    made.memory.put_word(LIST, 0);
    assert!(made.layout().is_none(), "no threads yet");
}

#[test]
fn without_symbols_monitors_only_are_known() {
    for name in [PARK_BLOCKER[0], OWNER[1], CLASSES[0], SHORT_REFERENCES[0]] {
        let mut made = Made::new();
        made.variables.remove(name);
        let layout = made.layout().expect("a layout");
        assert_eq!(
            (layout.class_place, layout.park_blocker),
            (CLASS_UNKNOWN, 0)
        );
        assert_eq!((layout.pending_monitor, layout.monitor_owner), (24, 64));
    }
}

#[test]
fn references_have_colours_if_the_collector_is_generational() {
    for (flags, has_colours, address_bits) in [
        (&[(ZGC[0], 1)][..], 0, VIEWS - 1),
        (&[(ZGC[0], 1), (GENERATIONAL[0], 0)], 0, VIEWS - 1),
        (&[(ZGC[0], 1), (GENERATIONAL[0], 1)], 1, u64::MAX),
        (&[(ZGC[0], 0), (GENERATIONAL[0], 1)], 0, u64::MAX),
    ] {
        let mut made = Made::new();
        for (name, value) in flags {
            made.set(name, *value);
        }
        let layout = made.layout().expect("a layout");
        assert_eq!(layout.has_colours, has_colours, "{flags:?}");
        assert_eq!(layout.address_bits, address_bits, "{flags:?}");
    }
}

#[test]
fn classes_are_words_or_in_headers_where_flags_say_so() {
    for (name, value, place) in [
        (NUMBERED_CLASSES[0], 0, CLASS_WORD),
        (CLASSES_IN_HEADERS[0], 1, CLASS_IN_HEADER),
        (CLASSES_IN_HEADERS[0], 0, CLASS_NUMBER),
    ] {
        let mut made = Made::new();
        made.set(name, value);
        let layout = made.layout().expect("a layout");
        assert_eq!(layout.class_place, place, "{name}");
    }
}
