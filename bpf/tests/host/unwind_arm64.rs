//! The kernel side's walker for arm64 and user space's agree about any memory.

use fastrand::Rng;
use unwind::{Architecture, Cfa, End, FpMode, Frame, Rule};

use crate::host::machine::Task;
use crate::memory::PAGE;
use crate::stack::{AUTO, Asked, DEPTH, NO_TABLE, ROOT, UNREADABLE, UNSUPPORTED};
use crate::unwinder::{MOST_DEPTH, Unwinder};
use crate::world::{Wanted, World};
use crate::{TGID, prepare};

const STACK: u64 = 0x7ffd_0000_0000;
/// One of the stack's pages is not there.
const STACK_PAGES: u64 = 4;
/// The processor signs return addresses with the bits above.
const MASK: u64 = (1 << 48) - 1;

/// `struct user_pt_regs`: x0 to x30, and where the others are.
type Registers = [u64; 34];
const FP: usize = 29;
const LR: usize = 30;
const SP: usize = 31;
const PC: usize = 32;
const PSTATE: usize = 33;

/// Instructions that say something of their frame: prologues, epilogues, the return from a signal, a call; and others.
const CODE: [&[u32]; 10] = [
    &[0xd503_233f],
    &[0xa9bb_7bfd, 0x9100_03fd],
    &[0x9100_03fd],
    &[0xa8c2_7bfd],
    &[0xd65f_03c0],
    &[0xd65f_0bff],
    &[0xd280_1168, 0xd400_0001],
    &[0xd280_1168, 0xd503_201f],
    &[0xd400_0001],
    &[0xd503_201f],
];
const BEFORE: [&[u32]; 6] = [
    &[0x9400_0010],
    &[0xd63f_0020],
    &[0xa9bb_7bfd],
    &[0xd280_1168],
    &[0xd280_1168, 0xd400_0001],
    &[0xd503_201f],
];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A rule as user space makes it.
fn any_rule(rng: &mut Rng) -> Rule {
    let (cfa, cfa_offset) = match rng.u32(0..12) {
        0..=5 => (Cfa::Sp, 16 * rng.i32(0..15)),
        6 => (Cfa::Sp, 8 * rng.i32(-20..0)),
        7 | 8 => (Cfa::Bp, 16 * rng.i32(-2..15)),
        9 => (Cfa::Register, 256 * 8 * rng.i32(0..20) + rng.i32(0..33)),
        _ => return [Rule::SIGNAL, Rule::END, Rule::UNSUPPORTED][rng.usize(0..3)],
    };
    let (fp, slot) = match rng.u32(0..10) {
        0 | 1 => (FpMode::Same, 0),
        2..=5 => (FpMode::AtCfa, 62),
        6 => (FpMode::Same, 63),
        7 => (FpMode::AtCfa, rng.u8(1..62)),
        8 => (FpMode::Same, rng.u8(1..62)),
        _ => (FpMode::Lost, rng.u8(0..62)),
    };
    Rule {
        cfa,
        cfa_offset,
        fp,
        fp_offset: 2 * rng.i16(-6..2),
        slot,
    }
}

/// A program with code of every kind: its return addresses.
fn any_program(rng: &mut Rng, world: &mut World) -> Vec<u64> {
    let mut found = Vec::new();
    for _ in 0..rng.u32(5..60) {
        let first = 4 * rng.u64(0..4);
        let wanted = Wanted {
            rule: (rng.u32(0..3) > 0).then(|| any_rule(rng)),
            exact: rng.bool(),
            before: bytes(BEFORE[rng.usize(0..BEFORE.len())]),
            code: bytes(CODE[rng.usize(0..CODE.len())]),
            low: Some((first, first + 1)),
            ..Wanted::default()
        };
        found.extend(world.place(rng, &wanted));
    }
    world.map_code();
    found
}

/// A word as stacks hold them: return addresses may be signed, frame pointers point upwards.
fn any_word(rng: &mut Rng, code: &[u64]) -> u64 {
    let signature = if rng.bool() { rng.u64(..) & !MASK } else { 0 };
    match rng.u32(0..20) {
        0..=10 => code[rng.usize(0..code.len())] | signature,
        11..=17 => STACK + 8 * rng.u64(0..STACK_PAGES * PAGE / 8),
        18 => [0, signature][rng.usize(0..2)],
        _ => rng.u64(..),
    }
}

/// Mostly frame records, one beside the other: each points to one above.
fn any_word_at(rng: &mut Rng, code: &[u64], at: u64) -> u64 {
    match rng.u32(0..10) {
        0 => any_word(rng, code),
        _ if at.is_multiple_of(16) => at + 16 * rng.u64(1..20),
        _ => code[rng.usize(0..code.len())] | [0, rng.u64(..) & !MASK][rng.usize(0..2)],
    }
}

/// The kernel side's words for what user space says; see `unwind_hostile.rs`.
fn may_be(end: End, frame: &Frame, rule: Rule, is_leaf: bool) -> Vec<u8> {
    match end {
        End::Root if rule.cfa == Cfa::Uncovered && is_leaf => vec![NO_TABLE, ROOT],
        End::Root => vec![ROOT],
        End::Depth => vec![DEPTH],
        // A register that is 0 is no place to one.
        End::NoTable if rule.cfa == Cfa::Register => vec![NO_TABLE, UNSUPPORTED],
        End::NoTable => vec![NO_TABLE],
        End::Unreadable => vec![UNREADABLE],
        // A frame pointer that is lost is 1 to the kernel side.
        End::Unsupported if frame.bp.is_none() => vec![UNSUPPORTED, NO_TABLE, UNREADABLE],
        End::Unsupported => vec![UNSUPPORTED],
    }
}

/// Addresses, and how it may end; nothing: a frame pointer is at half a word, which the two take differently.
fn user_space_walks(world: &World, mut frame: Frame) -> (Vec<u64>, Vec<u8>) {
    let read = |at| world.memory.word(at);
    let mut addresses = Vec::new();
    while addresses.len() < MOST_DEPTH {
        let pc = frame.lookup_address();
        let rule = frame.rule_by_code(world.rule(pc), read);
        let is_signal = rule.cfa == Cfa::Signal;
        addresses.push(if is_signal { frame.ip } else { pc });
        if rule.cfa == Cfa::Uncovered && frame.bp.is_some_and(|bp| bp % 8 == 4) {
            return (addresses, Vec::new());
        }
        match frame.caller(rule, read) {
            Ok(next) => frame = next,
            Err(end) => {
                let ends = may_be(end, &frame, rule, addresses.len() == 1);
                return (addresses, ends);
            }
        }
    }
    (addresses, vec![DEPTH])
}

/// Both walk from these registers: frames that they have found.
fn compare(
    unwinder: &Unwinder,
    world: &World,
    task: Task,
    registers: &Registers,
    what: &str,
) -> usize {
    let from = [PC, SP, FP].map(|at| registers[at]);
    let host = &unwinder.host;
    host.tell("host_enter", (task, registers.as_ptr()));
    unwinder.user_stack_from(0, task, TGID, from);
    unwinder.take_sent();
    let told = unwinder.walked(0);
    let leaf = Frame {
        lr: Some(registers[LR]).filter(|lr| *lr != 0),
        code_mask: MASK,
        ..Frame::new(Architecture::Aarch64, from[0], from[1], from[2])
    };
    let (addresses, ends) = user_space_walks(world, leaf.with_leaf(&registers[..31]));
    let what = format!("{what}: {:x?} for {addresses:x?}", told.stack());
    if ends.is_empty() {
        assert!(told.stack().starts_with(&addresses), "{what}");
    } else {
        assert!(told.stack() == addresses, "{what}");
        let last = world.rule(addresses[addresses.len() - 1]);
        let is_end = ends.contains(&told.end);
        assert!(is_end, "{what}: end {} for {ends:?}, {last:?}", told.end);
    }
    addresses.len()
}

#[test]
fn both_walkers_of_arm64_agree_about_any_memory() {
    let unwinder = crate::unwinder_of(&crate::ARM64);
    unwinder.host.tell("host_mask", (MASK,));
    let asked = Asked {
        mode: AUTO,
        compat: false,
        by_tables: true,
        unlisted: false,
        depth: 0,
        outside: true,
    };
    let mut depths = [0_u32; MOST_DEPTH + 1];
    for seed in 0..600 {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::drawn(&mut rng, false);
        let code = any_program(&mut rng, &mut world);
        world.make_tables(&mut rng);
        let gap = rng.u64(0..2 * STACK_PAGES);
        for at in (STACK..STACK + STACK_PAGES * PAGE).step_by(8) {
            if (at - STACK) / PAGE != gap {
                let word = any_word_at(&mut rng, &code, at);
                world.memory.write_word(at, word);
            }
        }
        let task = prepare(&unwinder, &mut rng, &world, asked, seed as u32 + 1);
        unwinder.remember(&world.memory);
        unwinder.set(1, rng.u32(0..8), task);
        for turn in 0..60 {
            let mut registers: Registers = [0; 34];
            registers.fill_with(|| any_word(&mut rng, &code));
            registers[PSTATE] = 0;
            registers[PC] = code[rng.usize(0..code.len())];
            registers[SP] = STACK + 8 * rng.u64(0..STACK_PAGES * PAGE / 16);
            registers[FP] = registers[SP] + 8 * rng.u64(0..20);
            let what = format!("seed {seed}, turn {turn}");
            depths[compare(&unwinder, &world, task, &registers, &what)] += 1;
        }
    }
    let deeper: u32 = depths[4..].iter().sum();
    assert!(deeper > 2_500, "{deeper} of 36,000: {depths:?}");
}
