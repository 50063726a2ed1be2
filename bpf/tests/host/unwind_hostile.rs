//! Memory and tables that hold anything: the walkers of the kernel side and of user space agree, and every walk ends.

use fastrand::Rng;
use unwind::{Architecture, Cfa, End, FpMode, Frame, Rule};

use crate::forms::{Form, call};
use crate::host::machine::Task;
use crate::memory::PAGE;
use crate::plan::pack;
use crate::stack::{AUTO, Asked, DEPTH, NO_TABLE, ROOT, UNREADABLE, UNSUPPORTED};
use crate::unwinder::{FileKey, FileTable, MOST_DEPTH, Process, Registers, Unwinder, at};
use crate::world::{CHUNK, Wanted, World};
use crate::{TGID, prepare};

const STACK: u64 = 0x7ffd_0000_0000;
/// One of the stack's pages is not there.
const STACK_PAGES: u64 = 4;

/// A rule as user space makes it: both walkers are made for such only. The caller's rbp is not said where the return address is in a
/// register, whole words are read, and no register has a number of rbp's, rsp's or none.
fn any_rule(rng: &mut Rng) -> Rule {
    let general = at::DWARF[rng.usize(0..14)].0;
    let register = if rng.bool() { 3 } else { general };
    let high = 8 * rng.i64(-20..40);
    let packed = |low| pack(high, low).expect("a small number");
    let (cfa, cfa_offset) = match rng.u32(0..12) {
        0..=2 => (Cfa::Sp, 8 * rng.i32(1..30)),
        3 => (Cfa::Sp, 8 * rng.i32(-20..0)),
        4 | 5 => (Cfa::Bp, 8 * rng.i32(-30..30)),
        6 => (Cfa::SpDeref, packed(8 * rng.u8(0..8))),
        7 => (Cfa::BpDeref, packed(8 * rng.u8(0..8))),
        8 => (Cfa::Plt, rng.i32(0..17)),
        9 => {
            return Rule {
                cfa: Cfa::RaRegister,
                // The kernel side knows of no rbx with a return address but in a leaf.
                cfa_offset: pack(high.max(0), if general == 3 { 0 } else { general })
                    .expect("a small number"),
                ..Rule::default()
            };
        }
        10 => (Cfa::Register, packed(register)),
        _ => return [Rule::SIGNAL, Rule::END, Rule::UNSUPPORTED][rng.usize(0..3)],
    };
    Rule {
        cfa,
        cfa_offset,
        fp: [FpMode::Same, FpMode::AtCfa, FpMode::AtBp, FpMode::Lost][rng.usize(0..4)],
        fp_offset: 8 * rng.i16(-12..4),
        slot: [0, 0, 63, rng.u8(1..63)][rng.usize(0..4)],
    }
}

/// A program with code of every kind: its return addresses.
fn any_program(rng: &mut Rng, world: &mut World) -> Vec<u64> {
    let mut found = Vec::new();
    for _ in 0..rng.u32(5..60) {
        let rule = (rng.u32(0..4) > 0).then(|| any_rule(rng));
        let form = Form::drawn(rng);
        let wanted = Wanted {
            rule,
            exact: rng.bool(),
            before: if rng.bool() { call(rng) } else { form.before },
            code: if rng.bool() { form.code } else { Vec::new() },
            ..Wanted::default()
        };
        found.extend(world.place(rng, &wanted));
    }
    world.map_code();
    found
}

/// A word as stacks hold them.
fn any_word(rng: &mut Rng, code: &[u64]) -> u64 {
    match rng.u32(0..20) {
        0..=12 => code[rng.usize(0..code.len())],
        13..=17 => STACK + 8 * rng.u64(0..STACK_PAGES * PAGE / 8),
        18 => 0,
        _ if rng.bool() => rng.u64(..) | 1,
        _ => 8 * rng.u64(1..1 << 44),
    }
}

/// The kernel side's words for what user space says. Where the two differ in words only: a CFA that does not lead on is no table's
/// to one, and not supported to the other; so is what needs a frame pointer that is lost, which the kernel side has as 1. An
/// outermost leaf may have a caller. Of words that are read together, one that is missing counts before one that is 0.
fn may_be(end: End, frame: &Frame, rule: Rule, is_leaf: bool) -> Vec<u8> {
    let reads_more =
        rule.cfa == Cfa::Signal || rule.slot > 0 || matches!(rule.fp, FpMode::AtCfa | FpMode::AtBp);
    let is_by_bp = rule.cfa == Cfa::Uncovered || rule == Rule::UNCOVERED;
    match end {
        End::Root if is_by_bp && is_leaf => vec![NO_TABLE],
        End::Root if reads_more => vec![ROOT, UNREADABLE],
        End::Root => vec![ROOT],
        End::Depth => vec![DEPTH],
        End::NoTable => vec![NO_TABLE],
        End::Unreadable if rule.cfa == Cfa::Register => vec![UNREADABLE, UNSUPPORTED],
        End::Unreadable => vec![UNREADABLE],
        End::Unsupported if frame.bp.is_none() => vec![UNSUPPORTED, NO_TABLE, UNREADABLE],
        End::Unsupported => vec![UNSUPPORTED, NO_TABLE],
    }
}

/// Addresses, and how it may end; nothing: here the two differ, and what follows is not compared. User space has frame pointers
/// aligned to words, the kernel side to half a word, as those of 32-bit programs are.
fn user_space_walks(world: &World, mut frame: Frame) -> (Vec<u64>, Vec<u8>) {
    let mut addresses = Vec::new();
    while addresses.len() < MOST_DEPTH {
        let pc = frame.lookup_address();
        let rule = world.rule(pc);
        addresses.push(if rule.cfa == Cfa::Signal {
            frame.ip
        } else {
            pc
        });
        if rule.cfa == Cfa::Uncovered && frame.bp.is_some_and(|bp| bp % 8 == 4) {
            return (addresses, Vec::new());
        }
        match frame.caller(rule, |at| world.memory.word(at)) {
            // A leaf may have popped its return address: so says user space only.
            Ok(next)
                if next.sp == frame.sp && !matches!(rule.cfa, Cfa::RaRegister | Cfa::Signal) =>
            {
                return (addresses, vec![NO_TABLE]);
            }
            Ok(next) => frame = next,
            Err(end) => {
                return (
                    addresses.clone(),
                    may_be(end, &frame, rule, addresses.len() == 1),
                );
            }
        }
    }
    (addresses, vec![DEPTH])
}

fn dwarf(registers: &Registers) -> [u64; 16] {
    let mut all = [0; 16];
    for (number, at) in at::DWARF {
        all[usize::from(number)] = registers[at];
    }
    all[6] = registers[at::BP];
    all[7] = registers[at::SP];
    all
}

/// Both walk from these registers. Frames that they have found, and 1 if both say how the stack ended.
fn compare(
    unwinder: &Unwinder,
    world: &World,
    task: Task,
    registers: &Registers,
    what: &str,
) -> (usize, u32) {
    let from = [at::IP, at::SP, at::BP].map(|at| registers[at]);
    unwinder.enter(task, registers);
    unwinder.user_stack_from(0, task, TGID, from);
    unwinder.take_sent();
    let told = unwinder.walked(0);
    let leaf = Frame::new(Architecture::X86_64, from[0], from[1], from[2]);
    let leaf = leaf.with_leaf(&dwarf(registers));
    let (addresses, ends) = user_space_walks(world, leaf);
    let what = format!("{what}: {:x?} for {addresses:x?}", told.stack());
    if ends.is_empty() {
        assert!(told.stack().starts_with(&addresses), "{what}");
    } else {
        assert!(told.stack() == addresses, "{what}");
        let last = world.rule(addresses[addresses.len() - 1]);
        let is_end = ends.contains(&told.end);
        assert!(is_end, "{what}: end {} for {ends:?}, {last:?}", told.end);
    }
    (addresses.len(), u32::from(!ends.is_empty()))
}

#[test]
fn both_walkers_agree_about_any_memory() {
    let unwinder = crate::unwinder();
    let asked = Asked {
        mode: AUTO,
        compat: false,
        by_tables: true,
        unlisted: false,
        depth: 0,
        outside: true,
    };
    let (mut frames, mut ended) = (0, 0);
    for seed in 0..600 {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::drawn(&mut rng, false);
        let code = any_program(&mut rng, &mut world);
        world.make_tables(&mut rng);
        let gap = rng.u64(0..2 * STACK_PAGES);
        for at in (STACK..STACK + STACK_PAGES * PAGE).step_by(8) {
            if (at - STACK) / PAGE != gap {
                world.memory.write_word(at, any_word(&mut rng, &code));
            }
        }
        let task = prepare(&unwinder, &mut rng, &world, asked, seed as u32 + 1);
        unwinder.remember(&world.memory);
        unwinder.set(1, rng.u32(0..8), task);
        for turn in 0..60 {
            let mut registers: Registers = [0; 21];
            registers.fill_with(|| any_word(&mut rng, &code) | 8);
            registers[at::CS] = 0x33;
            registers[at::IP] = code[rng.usize(0..code.len())];
            registers[at::SP] = STACK + 8 * rng.u64(0..STACK_PAGES * PAGE / 16);
            let what = format!("seed {seed}, turn {turn}");
            let found = compare(&unwinder, &world, task, &registers, &what);
            frames += found.0;
            ended += found.1;
        }
    }
    assert!(frames > 40_000, "{frames} frames");
    assert!(
        ended > 18_000,
        "{ended} of 36,000 walks compared to their ends"
    );
}

/// Words that a table's or a list's numbers may lead to.
fn any_words(unwinder: &Unwinder, rng: &mut Rng) {
    for chunk in [0, 1, 127] {
        let mut words = vec![0; 256];
        words.fill_with(|| match rng.u32(0..4) {
            0 => rng.u32(..),
            1 => rng.u32(0..1 << 21),
            2 => rng.u32(0..1 << 16),
            _ => rng.u32(0..4),
        });
        let at = [0, CHUNK - 256, 8 * rng.u32(0..CHUNK / 8 - 32)][rng.usize(0..3)];
        unwinder.write(chunk * CHUNK + at, &words);
    }
}

/// A tree of mappings in which nodes, mappings and numbers are anything.
fn any_tree(unwinder: &Unwinder, rng: &mut Rng, task: Task) {
    let mut known = vec![0, 2, 1 << 40];
    for _ in 0..20 {
        let any = |rng: &mut Rng, known: &[u64]| {
            known[rng.usize(0..known.len())] ^ u64::from(rng.u32(0..9) == 0) << rng.u32(0..64)
        };
        let made = if rng.bool() {
            let (mut pivots, mut slots) = ([0; 15], [0; 16]);
            for pivot in &mut pivots {
                let bits = rng.u32(1..48);
                *pivot = rng.u64(0..1 << bits);
            }
            slots.fill_with(|| any(rng, &known));
            let node = (rng.u32(0..16), &pivots, 15_u32, &slots, 16_u32);
            unwinder.host.ask::<u64>("host_node", node)
        } else {
            let file = any(rng, &known) as *const u8;
            let of = if rng.bool() {
                task
            } else {
                std::ptr::null_mut()
            };
            let map = (of, rng.u64(0..1 << 47), rng.u64(..), rng.u64(..), file);
            unwinder.host.ask::<u64>("host_map", map)
        };
        known.push(made);
    }
    let root = known[rng.usize(0..known.len())] | rng.u64(0..4);
    unwinder.host.tell("host_plant", (task, root));
    let table = FileTable {
        shift: rng.u64(..),
        pages_at: rng.u32(0..2 * CHUNK),
        pages: rng.u32(..),
    };
    unwinder.file(&FileKey::default(), &table);
}

/// Rules, tables, mappings and a list that are anything; then a thread.
fn any_tables(unwinder: &Unwinder, rng: &mut Rng, generation: u32) -> Task {
    unwinder.forget();
    let mut rules = vec![[0; 8]; 1 << 14];
    for rule in &mut rules[..64] {
        rng.fill(rule);
        rule[0] %= 12;
    }
    unwinder.rules(&rules);
    any_words(unwinder, rng);
    let task = unwinder.thread(TGID, 0, true, 1, 5);
    any_tree(unwinder, rng, task);
    let process = Process {
        start_stack: 1,
        mappings_at: [0, CHUNK - 8, rng.u32(..)][rng.usize(0..3)],
        mappings: [0, 1, rng.u32(0..9), rng.u32(..)][rng.usize(0..4)],
        generation,
        python: 0,
    };
    unwinder.process(TGID, Some(&process));
    task
}

/// Nothing but that it ends, with as many frames as there may be, and reads no memory of others.
#[test]
fn walks_end_whatever_the_tables_hold() {
    let unwinder = crate::unwinder();
    let (mut is_deep, mut ends) = ([0; 2], [0; 5]);
    for seed in 0..1_500 {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::drawn(&mut rng, false);
        let code = any_program(&mut rng, &mut world);
        for at in (STACK..STACK + PAGE).step_by(8) {
            let bits = rng.u32(0..64);
            let word = if rng.bool() {
                rng.u64(..) >> bits
            } else {
                any_word(&mut rng, &code)
            };
            world.memory.write_word(at, word);
        }
        let task = any_tables(&unwinder, &mut rng, seed as u32 + 1);
        unwinder.walk_by(rng.u32(0..4));
        unwinder.remember(&world.memory);
        let mut registers: Registers = [0; 21];
        registers.fill_with(|| rng.u64(..));
        registers[at::SP] = STACK + rng.u64(0..PAGE);
        registers[at::BP] = STACK + rng.u64(0..PAGE);
        unwinder.enter(task, &registers);
        unwinder.set(1, 0, task);
        unwinder.user_stack(0, task, TGID);
        unwinder.take_sent();
        let told = unwinder.walked(0);
        let depth = usize::from(told.depth);
        assert!(
            (1..=MOST_DEPTH).contains(&depth),
            "seed {seed}: {depth} frames"
        );
        let is_whole = told.end != DEPTH || depth == MOST_DEPTH;
        assert!(is_whole, "seed {seed}: cut at {depth}");
        is_deep[usize::from(depth > 1)] += 1;
        ends[usize::from(told.end)] += 1;
    }
    let kinds = ends.iter().filter(|count| **count > 0).count();
    assert!(kinds > 3 && is_deep[1] > 100, "{is_deep:?}, {ends:?}");
}
