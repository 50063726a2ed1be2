//! No program has atomic operations that Linux 5.10 lacks: it would be refused there, whatever it does.

use object::{Object, ObjectSection, SectionKind};

mod compile;

/// Of an instruction's first byte, its class and mode: `BPF_STX | BPF_ATOMIC`, which was `BPF_XADD` before 5.12.
const MODE: u8 = 0xe7;
const ATOMIC: u8 = 0xc3;
/// `BPF_ADD` without `BPF_FETCH`: the only one before 5ffa25502b5a and 5ca419f2864a (5.12).
const ADD: i32 = 0;
const LENGTH: usize = 8;

#[test]
fn no_atomic_operation_is_newer_than_5_10() {
    let mut added = 0;
    for (name, object) in compile::objects("x86") {
        let file = object::File::parse(&*object).expect("an object");
        let programs = file.sections().filter(|s| s.kind() == SectionKind::Text);
        for section in programs {
            let at = section.name().expect("a name");
            let code = section.data().expect("instructions");
            for (index, instruction) in code.chunks_exact(LENGTH).enumerate() {
                if instruction[0] & MODE != ATOMIC {
                    continue;
                }
                let operation = i32::from_le_bytes(instruction[4..].try_into().expect("4 bytes"));
                assert_eq!(operation, ADD, "{name}, {at}, instruction {index}");
                added += 1;
            }
        }
    }
    assert!(added > 0, "no counters, so these are no programs");
}
