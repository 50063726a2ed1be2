//! Programs that are no BTF ones call no kernel function before Linux 6.12, even where the function exists: the verifier would refuse
//! the whole object.
//!
//! Every path that is left when `bpf_task_from_vpid` (6.14) is not there is followed, as the verifier follows it.

use std::collections::{HashMap, HashSet};

use object::{Object, ObjectSection, ObjectSymbol, SectionIndex, SymbolKind};

use crate::code::{CALL, Code, EXIT, JUMP, LENGTH, LOAD_WIDE, LONG_JUMP, Reference, code_of};
use crate::compile;

/// Sections of programs that could not call them before bc638d8cb5be (6.12).
const CLASSIC: [&str; 5] = ["tp/", "tracepoint", "perf_event", "uprobe", "kprobe"];
/// Stands for kernels of after that commit.
const NEWER: &str = "bpf_task_from_vpid";

/// What a register holds, as far as it matters: the constants that tests of what exists are made of.
type Registers = [Option<bool>; 16];
type At = (SectionIndex, usize, Registers);

/// Kernel functions that can be called from an instruction on, where `NEWER` is missing.
fn reachable(
    code: &HashMap<SectionIndex, Code>,
    from: SectionIndex,
    first: usize,
) -> HashSet<String> {
    let mut called = HashSet::new();
    let mut open: Vec<At> = vec![(from, first, Registers::default())];
    let mut seen: HashSet<At> = open.iter().copied().collect();
    while let Some(at) = open.pop() {
        for next in step(code, at, &mut called) {
            if seen.insert(next) {
                open.push(next);
            }
        }
        assert!(seen.len() < 10_000_000, "too many paths to follow");
    }
    called
}

/// What is executed after an instruction: one thing, two, or nothing.
fn step(code: &HashMap<SectionIndex, Code>, at: At, called: &mut HashSet<String>) -> Vec<At> {
    let (section, index, mut known) = at;
    let here = &code[&section];
    let instruction = here.instructions[index];
    let [operation, registers, low, high, ..] = instruction;
    let (target, source) = (usize::from(registers & 0xf), registers >> 4);
    let offset = i64::from(i16::from_le_bytes([low, high]));
    let immediate = i32::from_le_bytes(instruction[4..].try_into().expect("4 bytes"));
    let jump = |by: i64| usize::try_from(index as i64 + 1 + by).expect("within");
    let reference = here.references.get(&index);
    match operation {
        EXIT => vec![],
        JUMP => vec![(section, jump(offset), known)],
        LONG_JUMP => vec![(section, jump(immediate.into()), known)],
        CALL => {
            known[..6].fill(None);
            let mut next = vec![(section, index + 1, known)];
            if let Some(Reference::Kernel(name)) = reference {
                called.insert(name.clone());
            } else if let Some((into, first)) = here.own_function(section, index) {
                next.push((into, first, Registers::default()));
            }
            next
        }
        LOAD_WIDE => {
            known[target] = match reference {
                Some(Reference::Kernel(name)) if name == NEWER => Some(false),
                _ => None,
            };
            vec![(section, index + 2, known)]
        }
        _ if matches!(operation & 7, 5 | 6) => {
            let (ahead, there) = ((section, index + 1, known), (section, jump(offset), known));
            match (operation & !3, known[target], immediate) {
                // If equal, by constant; if not equal.
                (0x14, Some(value), 0 | 1) if value == (immediate == 1) => vec![there],
                (0x14, Some(_), 0 | 1) => vec![ahead],
                (0x54, Some(value), 0 | 1) if value == (immediate == 1) => vec![ahead],
                (0x54, Some(_), 0 | 1) => vec![there],
                _ => vec![ahead, there],
            }
        }
        _ => {
            // Loads and arithmetic; a store leaves registers alone.
            if matches!(operation & 7, 0 | 1 | 4 | 7) {
                let with_register = operation & 8 != 0;
                let other = match (with_register, immediate) {
                    (true, _) => known[usize::from(source)],
                    (false, 0) => Some(false),
                    (false, 1) => Some(true),
                    _ => None,
                };
                known[target] = calculated(operation, known[target], other);
            }
            vec![(section, index + 1, known)]
        }
    }
}

/// Moves, ORs, ANDs and XORs of 0 and 1, in 32 bits or 64.
fn calculated(operation: u8, value: Option<bool>, other: Option<bool>) -> Option<bool> {
    if !matches!(operation & 7, 4 | 7) {
        return None;
    }
    match (operation >> 4, value, other) {
        (0xb, _, other) => other,
        (0x4, Some(value), Some(other)) => Some(value | other),
        (0x5, Some(false), _) | (0x5, _, Some(false)) => Some(false),
        (0x5, Some(value), Some(other)) => Some(value & other),
        (0xa, Some(value), Some(other)) => Some(value ^ other),
        _ => None,
    }
}

#[test]
fn no_classic_program_calls_kernel_functions_where_it_may_not() {
    let mut classic = 0;
    let mut guarded = 0;
    for (name, object) in compile::objects("x86") {
        let file = object::File::parse(&*object).expect("an object");
        let code = code_of(&file);
        for section in file.sections() {
            let at = section.name().expect("a name").trim_start_matches('?');
            if !CLASSIC.iter().any(|start| at.starts_with(start)) {
                continue;
            }
            classic += 1;
            let programs = file.symbols().filter(|symbol| {
                symbol.section_index() == Some(section.index()) && symbol.kind() == SymbolKind::Text
            });
            for program in programs {
                let first = program.address() as usize / LENGTH;
                let called = reachable(&code, section.index(), first);
                let program = program.name().expect("a name");
                assert_eq!(called, HashSet::new(), "{name}, {program}");
            }
            let references = code[&section.index()].references.values();
            guarded += references
                .filter(|to| matches!(to, Reference::Kernel(name) if name == "bpf_task_release"))
                .count();
        }
    }
    assert!(classic >= 4, "{classic} sections");
    assert!(guarded > 0, "none has such a call at all");
}
