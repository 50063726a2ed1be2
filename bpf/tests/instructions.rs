//! No program has atomic operations that Linux 5.10 lacks: it would be refused there, whatever it does. None that may read through NULL has
//! functions: old kernels would panic.

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

/// Before 0108a4e9f358 (2023) the kernel looks for the exception table of a failed read at the program, which has none of its own where
/// it has functions. biolatency reads along a request's pointers, some of which are NULL in some requests.
#[test]
fn programs_that_may_read_through_null_have_no_functions() {
    for (name, object) in compile::objects("x86") {
        let file = object::File::parse(&*object).expect("an object");
        let functions = file.section_by_name(".text");
        let bytes = functions.map_or(0, |section| section.size());
        if name == "biolatency" {
            assert_eq!(bytes, 0, "{name} has functions");
        } else if name == "offcputime" {
            assert!(
                bytes > 0,
                "functions are elsewhere than they are looked for"
            );
        }
    }
}
