//! A thread of a made-up machine, and what it says that it waits for.

use bpf::lockstat::types::java_machine;

use super::super::tests::{DESCRIBED_AT, Memory, machine};
use super::super::{Description, Machine};
use super::*;

/// Places of a thread, its object, a lock and its class, the owner's object, and a monitor.
const THREAD: u64 = 0x50_000;
const OBJECT: u64 = 0x51_000;
const LOCK: u64 = 0x52_000;
const CLASS: u64 = 0x53_000;
const OWNER: u64 = 0x54_000;
const MONITOR: u64 = 0x55_000;
const HANDLE: u64 = 0x56_000;
const OWNABLE: u64 = 0x57_000;
const ITS_THREAD: u64 = 0x58_000;

fn layout() -> java_machine {
    java_machine {
        ownable: OWNABLE,
        address_bits: u64::MAX,
        class_base: CLASS - 0x40,
        class_shift: 3,
        thread_object: 8,
        pending_monitor: 16,
        waiting_monitor: 24,
        park_blocker: 32,
        native_thread: 40,
        owner: 48,
        class_at: 8,
        ancestor: 56,
        class_place: CLASS_NUMBER,
        ..java_machine::default()
    }
}

/// A thread that is parked for a lock that another one has. `reference`: how memory has the address of an object.
fn parked(reference: impl Fn(u64) -> u64) -> Memory {
    let memory = machine();
    memory.put_word(THREAD + 8, reference(OBJECT));
    memory.put_word(OBJECT + 32, reference(LOCK));
    memory.put_word(LOCK + 8, 8);
    memory.put_word(LOCK + 48, reference(OWNER));
    memory.put_word(CLASS + 56, OWNABLE);
    memory.put_word(OWNER + 40, ITS_THREAD);
    memory.put_word(0x60_000, 0);
    memory
}

fn awaited(memory: &Memory, layout: &java_machine) -> Option<Awaited> {
    let read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
    let description = Description::read(DESCRIBED_AT, &read).expect("all that is needed");
    Machine::of(&description, &read).awaited(layout, THREAD)
}

const AWAITED: Awaited = Awaited {
    what: What::Blocker,
    object: LOCK,
    class: CLASS,
    monitor: 0,
    owner: ITS_THREAD,
};

#[test]
fn a_lock_that_a_thread_is_parked_for_is_known_however_references_look() {
    assert_eq!(awaited(&parked(|at| at), &layout()), Some(AWAITED));

    // One of four bytes, but for the thread's own.
    let short = java_machine {
        has_short_references: 1,
        object_base: 0x10_000,
        object_shift: 3,
        ..layout()
    };
    let memory = parked(|at| (at - 0x10_000) >> 3);
    memory.put_word(THREAD + 8, OBJECT);
    assert_eq!(awaited(&memory, &short), Some(AWAITED));

    let coloured = java_machine {
        has_colours: 1,
        has_handles: 1,
        ..layout()
    };
    for shift in 13..=16 {
        let memory = parked(|at| at << shift | 1 << (shift - 1) | 0xf0);
        memory.put_word(THREAD + 8, HANDLE);
        memory.put_word(HANDLE, OBJECT << shift | 1 << (shift - 1));
        assert_eq!(awaited(&memory, &coloured), Some(AWAITED), "{shift}");
    }
}

#[test]
fn a_class_is_a_word_a_number_or_in_the_header() {
    let of = |place, at: u64, word: u64| {
        let memory = parked(|at| at);
        memory.put_word(LOCK + at, word);
        let layout = java_machine {
            class_place: place,
            ..layout()
        };
        awaited(&memory, &layout).map(|awaited| awaited.class)
    };
    assert_eq!(of(CLASS_NUMBER, 8, 8), Some(CLASS));
    assert_eq!(of(CLASS_IN_HEADER, 0, 8 << CLASS_SHIFT | 5), Some(CLASS));
    assert_eq!(of(0, 8, CLASS), Some(CLASS));
    assert_eq!(of(CLASS_UNKNOWN, 8, 8), Some(0));
}

#[test]
fn monitors_come_before_what_a_thread_is_parked_for() {
    for (entered, notified, what) in [
        (MONITOR, 0, What::Monitor),
        (0, MONITOR, What::Notice),
        (MONITOR, MONITOR, What::Monitor),
    ] {
        let memory = parked(|at| at);
        memory.put_word(THREAD + 16, entered);
        memory.put_word(THREAD + 24, notified);
        memory.put_word(MONITOR, HANDLE);
        memory.put_word(HANDLE, LOCK);
        let expected = Awaited {
            what,
            monitor: MONITOR,
            owner: 0,
            ..AWAITED
        };
        assert_eq!(awaited(&memory, &layout()), Some(expected));
    }
}

#[test]
fn what_has_no_owner_has_none() {
    let memory = parked(|at| at);
    memory.put_word(CLASS + 56, OWNABLE + 8);
    let unowned = Awaited {
        owner: 0,
        ..AWAITED
    };
    assert_eq!(awaited(&memory, &layout()), Some(unowned));

    let memory = parked(|at| at);
    memory.put_word(OBJECT + 32, 0);
    let sleeper = awaited(&memory, &layout()).expect("it can be read");
    assert_eq!((sleeper.what, sleeper.class), (What::Sleep, 0));
}

#[test]
fn an_object_is_the_same_in_all_views_of_it() {
    let memory = parked(|at| at);
    let layout = java_machine {
        address_bits: 0xffff,
        ..layout()
    };
    let object = awaited(&memory, &layout).map(|awaited| awaited.object);
    assert_eq!(object, Some(LOCK & 0xffff));
}

#[test]
fn nothing_is_known_where_nothing_is() {
    for at in [THREAD + 8, OBJECT + 32, THREAD + 16, THREAD + 24] {
        let memory = parked(|at| at);
        memory.put_word(at, u64::MAX - 64);
        assert_eq!(awaited(&memory, &layout()), None, "{at:#x}");
    }
    // Shifts of a hostile machine.
    let layout = java_machine {
        class_shift: 255,
        object_shift: 255,
        has_short_references: 1,
        ..layout()
    };
    assert!(awaited(&parked(|at| at), &layout).is_some_and(|awaited| awaited.owner == 0));
}
