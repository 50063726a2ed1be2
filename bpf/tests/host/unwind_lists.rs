//! Lists of mappings as long as they may be: each of their mappings is found, and nothing between two.

use crate::TGID;
use crate::memory::Memory;
use crate::stack::{AUTO, NO_TABLE, ROOT};
use crate::unwinder::{Process, Registers, Unwinder, at};
use crate::world::CHUNK;

const MOST_MAPPINGS: u32 = 4096;
const FIRST: u64 = 0x10_0000_0000;
/// Bytes from one mapping to the next, of a mapping, and of its table.
const APART: u64 = 0x2000;
const LONG: u64 = 0x1000;
const COVERED: u64 = 0x400;
const STACK: u64 = 0x7fff_0000;
/// Different rules: the return address is in the first word, the second, …
const RULES: u64 = 50;
const INDEX: u32 = CHUNK + 8;
const LIST: u32 = 3 * CHUNK + 64;

fn list(unwinder: &Unwinder, count: u32) {
    let mut words = Vec::new();
    for mapping in 0..count {
        let begin = FIRST + u64::from(mapping) * APART;
        for word in [begin, begin + LONG, begin] {
            words.extend([word as u32, (word >> 32) as u32]);
        }
        words.extend([INDEX + 2 * (mapping % RULES as u32), 1]);
    }
    unwinder.write(LIST, &words);
}

fn rules(unwinder: &Unwinder) {
    let mut rules = vec![[0; 8]];
    let mut index = Vec::new();
    for rule in 1..=RULES as u32 {
        // CFA_SP
        let [low, high, ..] = (8 * rule).to_le_bytes();
        rules.push([1, 0, 0, 0, low, high, 0, 0]);
        index.extend([0, rule << 16]);
    }
    unwinder.rules(&rules);
    unwinder.write(INDEX, &index);
}

#[test]
fn every_mapping_of_the_longest_list_is_found() {
    let unwinder = crate::unwinder();
    unwinder.walk_by(AUTO);
    rules(&unwinder);
    list(&unwinder, MOST_MAPPINGS);
    let mut memory = Memory::default();
    for word in 0..RULES {
        memory.write_word(STACK + 8 * word, 0x1000 * (word + 1) + 1);
    }
    unwinder.remember(&memory);
    let task = unwinder.thread(TGID, 0, true, 1, 0);
    let mut registers: Registers = [0; 21];
    registers[at::CS] = 0x33;
    unwinder.enter(task, &registers);
    unwinder.set(1, 0, task);
    let lengths = [1, 2, 3, 1000, MOST_MAPPINGS - 1, MOST_MAPPINGS];
    for (mappings, generation) in lengths.into_iter().zip(1..) {
        let process = Process {
            start_stack: 1,
            mappings_at: LIST,
            mappings,
            generation,
            python: 0,
        };
        unwinder.process(TGID, Some(&process));
        for mapping in 0..u64::from(mappings) {
            let begin = FIRST + mapping * APART;
            for offset in [0, COVERED - 1, COVERED, LONG - 1, LONG] {
                let ip = begin + offset;
                unwinder.user_stack_from(0, task, TGID, [ip, STACK, 0]);
                unwinder.take_sent();
                let told = unwinder.walked(0);
                let caller = 0x1000 * (mapping % RULES + 1);
                if offset < COVERED {
                    assert_eq!(
                        (told.stack(), told.end),
                        (&[ip, caller][..], ROOT),
                        "{mapping}"
                    );
                } else {
                    assert_eq!((told.stack(), told.end), (&[ip][..], NO_TABLE), "{mapping}");
                }
            }
        }
    }
}
