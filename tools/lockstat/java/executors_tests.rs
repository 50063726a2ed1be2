//! Executors of a made-up machine.

use super::*;
use crate::lockstat::hotspot::Description;
use crate::lockstat::hotspot::tests::{DESCRIBED_AT, Memory, machine};

const FIELDS: [(&str, &str, bool, u64); 10] = [
    ("ThreadsSMRSupport", "_java_thread_list", true, 0x30_000),
    ("JavaThread", "_current_pending_monitor", false, 8),
    ("ObjectMonitor", "_owner", false, 8),
    ("Klass", "_super", false, 8),
    ("Klass", "_name", false, 32),
    ("InstanceKlass", "_constants", false, 16),
    ("InstanceKlass", "_fields", false, 24),
    ("ConstantPool", "_length", false, 4),
    ("Symbol", "_length", false, 0),
    ("Symbol", "_body", false, 2),
];
const ARRAY: (&str, &str, bool, u64) = ("Array<u2>", "_data", false, 4);

/// An object, its class and that one's tables, each in a page of its own; the class is a word of the object's.
const THREAD: u64 = 0x100_000;
const OBJECTS: [u64; 5] = [0x110_000, 0x120_000, 0x130_000, 0x140_000, 0x150_000];
const CLASS: u64 = 0x1_000;
const CONSTANTS: u64 = 0x2_000;
const NUMBERS: u64 = 0x3_000;
const NAMES: u64 = 0x4_000;

fn text(memory: &Memory, at: u64, text: &str) {
    memory.put(at, &[text.len() as u8, 0]);
    memory.put(at + 2, text.as_bytes());
}

/// Objects of these classes, each of which has one field, that refers to the next one.
fn chain(line: [(&str, &str); 4]) -> Memory {
    let memory = machine();
    memory.describe(&[&FIELDS[..], &[ARRAY]].concat());
    memory.put_word(THREAD, OBJECTS[0]);
    for (at, (class, field)) in line.into_iter().enumerate() {
        let object = OBJECTS[at];
        memory.put_word(object, object + CLASS);
        memory.put_word(object + 40, OBJECTS[at + 1]);
        memory.put_word(object + CLASS + 8, 0);
        memory.put_word(object + CLASS + 16, object + CONSTANTS);
        memory.put_word(object + CLASS + 24, object + NUMBERS);
        memory.put_word(object + CLASS + 32, object + NAMES);
        memory.put_word(object + CONSTANTS + 16, object + NAMES + 0x100);
        text(&memory, object + NAMES, &class.replace('.', "/"));
        text(&memory, object + NAMES + 0x100, field);
        let numbers: [u16; 6] = [0, 0, 0, 0, 40 << 2 | 1, 0];
        memory.put(object + NUMBERS, &6_u32.to_le_bytes());
        for (number, at) in numbers.iter().zip(0..) {
            memory.put(object + NUMBERS + 4 + 2 * at, &number.to_le_bytes());
        }
    }
    memory.put_word(OBJECTS[4] + 0x8_000, 0);
    memory
}

fn learned(memory: &Memory) -> Queues {
    let layout = java_machine {
        address_bits: u64::MAX,
        ..java_machine::default()
    };
    let read = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
    let description = Description::read(DESCRIBED_AT, &read).expect("all that is needed");
    let mut queues = Queues::default();
    queues.learn(&Machine::of(&description, &read), &layout, THREAD);
    queues
}

const RUNS_WORKER: [(&str, &str); 4] = [
    ("java.lang.Thread", "target"),
    ("java.util.concurrent.ThreadPoolExecutor$Worker", "this$0"),
    ("java.util.concurrent.ThreadPoolExecutor", "workQueue"),
    ("java.util.concurrent.LinkedBlockingQueue", "notEmpty"),
];

#[test]
fn an_executors_threads_have_nothing_to_do_at_its_queue() {
    let queues = learned(&chain(RUNS_WORKER));
    assert!(queues.have(OBJECTS[4]) && !queues.have(OBJECTS[3]));
    assert!(!queues.carry());
}

#[test]
fn a_thread_of_ones_own_is_no_executors() {
    let mut own = RUNS_WORKER;
    own[1].0 = "shop.Consumer";
    assert!(!learned(&chain(own)).have(OBJECTS[4]));
    let mut full = RUNS_WORKER;
    full[3].1 = "notFull";
    assert!(!learned(&chain(full)).have(OBJECTS[4]));
}

#[test]
fn carriers_of_virtual_threads_are_known() {
    let mut carrier = RUNS_WORKER;
    carrier[0].0 = CARRIER;
    assert!(learned(&chain(carrier)).carry());
}
