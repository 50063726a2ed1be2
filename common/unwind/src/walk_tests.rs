//! The walk on stacks made by hand.

use std::collections::HashMap;

use super::*;
use crate::architecture::Architecture;
use crate::rows::Rows;
use crate::rule::FpMode;

/// Code from 0x1000 on with 16 bytes for each rule; loaded 0x40_0000 higher.
const BIAS: u64 = 0x40_0000;

fn table(rules: &[Rule]) -> Table {
    let mut rows = Rows::default();
    for (index, &rule) in rules.iter().enumerate() {
        rows.push(0x1000 + 16 * index as u64, rule).unwrap();
    }
    let end = 0x1000 + 16 * rules.len() as u64;
    rows.push(end, Rule::UNCOVERED).unwrap();
    rows.finish().unwrap()
}

/// An address in the code of the rule with this index, but not its first.
fn code(index: u64) -> u64 {
    BIAS + 0x1000 + 16 * index + 5
}

fn rule(cfa: Cfa, cfa_offset: i32) -> Rule {
    Rule {
        cfa,
        cfa_offset,
        ..Rule::default()
    }
}

fn packed(cfa: Cfa, high: i64, low: u8) -> Rule {
    rule(cfa, Rule::pack(high, low).unwrap())
}

/// A leaf in the code of the first rule, with rsp 0x8000 and rbp 0x9000.
fn leaf() -> Frame {
    let mut all = [0; 16];
    (all[6], all[7]) = (0x9000, 0x8000);
    all[10] = 0x8500;
    all[5] = code(1);
    Frame::new(Architecture::X86_64, code(0), 0x8000, 0x9000).with_leaf(&all)
}

fn run(frame: Frame, rules: &[Rule], stack: &[(u64, u64)]) -> (Vec<u64>, End) {
    let table = table(rules);
    let memory: HashMap<u64, u64> = stack.iter().copied().collect();
    let find = |ip: u64| (ip >= BIAS).then_some((&table, BIAS));
    walk(frame, |address| memory.get(&address).copied(), find, 8)
}

#[test]
fn each_kind_of_cfa_finds_the_return_address() {
    let found = |first: Rule, stack: &[(u64, u64)]| {
        let (ips, end) = run(leaf(), &[first, Rule::END], stack);
        assert_eq!((ips, end), (vec![code(0), code(1)], End::Root), "{first:?}");
    };
    found(rule(Cfa::Sp, 8), &[(0x8000, code(1))]);
    found(rule(Cfa::Sp, 0x12_0000), &[(0x12_7ff8, code(1))]);
    found(rule(Cfa::Bp, 16), &[(0x9008, code(1))]);
    let deref = [(0x8010, 0x8100), (0x8100, code(1))];
    found(packed(Cfa::SpDeref, 16, 8), &deref);
    let deref = [(0x8ff8, 0x9100), (0x90f8, code(1))];
    found(packed(Cfa::BpDeref, -8, 0), &deref);
    found(packed(Cfa::Register, -16, 10), &[(0x84e8, code(1))]);
    found(packed(Cfa::RaRegister, 0, 5), &[]);
    // Byte 5 of a PLT entry.
    found(rule(Cfa::Plt, 11), &[(0x8000, code(1))]);
    found(rule(Cfa::Plt, 5), &[(0x8008, code(1))]);
}

#[test]
fn the_rule_of_a_return_address_is_that_of_the_call() {
    // The call is the last instruction of the second rule's code.
    let after = BIAS + 0x1000 + 32;
    let rules = [
        rule(Cfa::Sp, 8),
        rule(Cfa::Sp, 16),
        Rule::UNSUPPORTED,
        Rule::END,
    ];
    let stack = [(0x8000, after), (0x8010, code(3))];
    let (ips, end) = run(leaf(), &rules, &stack);
    assert_eq!((ips, end), (vec![code(0), after, code(3)], End::Root));
    let caller = Frame {
        exact: false,
        ip: after,
        ..leaf()
    };
    assert_eq!(run(caller, &rules, &[(0x8008, 0)]).1, End::Root);
}

#[test]
fn the_frame_pointer_is_kept_loaded_or_lost() {
    let first = |fp, fp_offset| Rule {
        fp,
        fp_offset,
        ..rule(Cfa::Sp, 32)
    };
    let rules = |fp, offset| [first(fp, offset), rule(Cfa::Bp, 16), Rule::END];
    let common = [(0x8018, code(1)), (0x8010, 0xa000), (0x8ff0, 0xb000)];
    for (fp, offset, bp) in [
        (FpMode::Same, 0, 0x9000),
        (FpMode::AtCfa, -16, 0xa000),
        (FpMode::AtBp, -16, 0xb000),
    ] {
        let stack = [&common[..], &[(bp + 8, code(2))]].concat();
        let (ips, end) = run(leaf(), &rules(fp, offset), &stack);
        assert_eq!((ips.len(), end), (3, End::Root), "{fp:?}");
    }
    assert_eq!(
        run(leaf(), &rules(FpMode::Lost, 0), &common).1,
        End::Unsupported
    );
    assert_eq!(
        run(leaf(), &rules(FpMode::AtBp, 64), &common).1,
        End::Unreadable
    );
}

#[test]
fn a_signal_frame_continues_with_what_it_interrupted() {
    // The handler returns to the trampoline; the signal interrupted the first byte of the third rule's code.
    let first = BIAS + 0x1000 + 32;
    let rules = [rule(Cfa::Sp, 8), Rule::SIGNAL, rule(Cfa::Bp, 16), Rule::END];
    let frame = 0x8008;
    let stack = [
        (0x8000, code(1)),
        (frame + 120, 0x7000),
        (frame + 128, 0x5000),
        (frame + 160, 0x6000),
        (frame + 168, first),
        (0x7008, code(3)),
    ];
    let (ips, end) = run(leaf(), &rules, &stack);
    assert_eq!(
        (ips, end),
        (vec![code(0), code(1), first, code(3)], End::Root)
    );
}

#[test]
fn code_without_rules_is_left_through_the_frame_pointer() {
    let jit = |bp| Frame {
        ip: 0x1234,
        bp: Some(bp),
        ..leaf()
    };
    let rules = [Rule::END];
    let (ips, end) = run(jit(0x9000), &rules, &[(0x9000, 0x9800), (0x9008, code(0))]);
    assert_eq!((ips, end), (vec![0x1234, code(0)], End::Root));
    assert_eq!(run(jit(0), &rules, &[]).1, End::Root);
    assert_eq!(
        run(jit(0x9000), &rules, &[(0x9000, 1), (0x9008, 0)]).1,
        End::Root
    );
    assert_eq!(run(jit(0x9004), &rules, &[]).1, End::NoTable, "not aligned");
    assert_eq!(
        run(jit(0x7000), &rules, &[]).1,
        End::NoTable,
        "below the stack pointer"
    );
    assert_eq!(run(jit(0x9000), &rules, &[(0x9000, 1)]).1, End::Unreadable);
    let lost = Frame { bp: None, ..jit(0) };
    assert_eq!(run(lost, &rules, &[]).1, End::NoTable);
}

#[test]
fn registers_are_only_known_in_the_leaf() {
    let caller = Frame {
        exact: false,
        ..leaf()
    };
    for first in [packed(Cfa::Register, 0, 10), packed(Cfa::RaRegister, 0, 5)] {
        assert_eq!(run(caller, &[first], &[]).1, End::Unsupported);
        let unknown = Frame {
            leaf: None,
            ..leaf()
        };
        assert_eq!(run(unknown, &[first], &[]).1, End::Unsupported);
    }
    assert_eq!(
        run(leaf(), &[packed(Cfa::Register, 0, 200)], &[]).1,
        End::Unsupported
    );
}

#[test]
fn a_stack_that_does_not_shrink_ends() {
    let stack = [(0x8000, code(0)), (0x7ff8, code(0))];
    let caller = Frame {
        exact: false,
        ..leaf()
    };
    assert_eq!(run(caller, &[rule(Cfa::Sp, 0)], &stack).1, End::Unsupported);
    assert_eq!(
        run(leaf(), &[rule(Cfa::Sp, -8)], &stack).1,
        End::Unsupported
    );
    // Around the end of the address space: above rsp, but nothing is there.
    let around = [rule(Cfa::Bp, i32::MIN)];
    assert_eq!(run(leaf(), &around, &stack).1, End::Unreadable);
    assert_eq!(
        run(leaf(), &[Rule::UNSUPPORTED], &stack).1,
        End::Unsupported
    );
}

#[test]
fn depth_is_bounded_and_unreadable_stacks_end() {
    let stack: Vec<_> = (0..100).map(|i| (0x8000 + 8 * i, code(0))).collect();
    let (ips, end) = run(leaf(), &[rule(Cfa::Sp, 8)], &stack);
    assert_eq!((ips.len(), end), (8, End::Depth));
    assert_eq!(
        run(leaf(), &[rule(Cfa::Sp, 8)], &stack[..3]).1,
        End::Unreadable
    );
    // A frame that refers to itself.
    let circle = [(0x9000, 0x9000), (0x9008, 0x1234)];
    let jit = Frame {
        ip: 0x1234,
        ..leaf()
    };
    assert_eq!(run(jit, &[Rule::END], &circle).1, End::NoTable);
}

#[test]
fn rbx_is_known_where_the_callee_saved_or_kept_it() {
    let saves = Rule {
        slot: 2,
        ..rule(Cfa::Sp, 16)
    };
    let resolves = packed(Cfa::Register, 24, 3);
    let stack = [(0x8000, 0x8100), (0x8008, code(1)), (0x8110, code(2))];
    let rules = [saves, resolves, Rule::END];
    let found = run(leaf(), &rules, &stack);
    assert_eq!(found, (vec![code(0), code(1), code(2)], End::Root));
    let silent = [rule(Cfa::Sp, 16), resolves, Rule::END];
    assert_eq!(run(leaf(), &silent, &stack).1, End::Unsupported);
    // What one frame saved says nothing about the frame after the next.
    let between = [saves, rule(Cfa::Sp, 8), resolves];
    let stack = [
        (0x8000, 0x8100),
        (0x8008, code(1)),
        (0x8010, code(2)),
        (0x8110, code(3)),
    ];
    assert_eq!(run(leaf(), &between, &stack).1, End::Unsupported);
    // Unless that has kept it; so may a leaf have.
    let keeps = Rule {
        slot: 63,
        ..rule(Cfa::Sp, 8)
    };
    let found = run(leaf(), &[saves, keeps, resolves, Rule::END], &stack);
    assert_eq!(found, ((0..4).map(code).collect(), End::Root));
    let mut registers = [0; 16];
    registers[3] = 0x8100;
    let leaf = leaf().with_leaf(&registers);
    let stack = [(0x8000, code(1)), (0x8110, code(2))];
    let found = run(leaf, &[keeps, resolves, Rule::END], &stack);
    assert_eq!(found, ((0..3).map(code).collect(), End::Root));
}
