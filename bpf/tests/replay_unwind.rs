//! The unwinder's programs on random programs and stacks of which the walk is known, and on memory that holds anything.

#[path = "host/unwind_arm64.rs"]
mod arm64;
#[path = "host/unwind_code.rs"]
mod code;
#[path = "host/unwind_ends.rs"]
mod ends;
#[path = "host/unwind_forms.rs"]
mod forms;
#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;
#[path = "host/unwind_hostile.rs"]
mod hostile;
#[path = "host/unwind_kept.rs"]
mod kept;
#[path = "host/unwind_kernels.rs"]
mod kernels;
#[path = "host/unwind_layout.rs"]
mod layout;
#[path = "host/unwind_lists.rs"]
mod lists;
#[path = "host/unwind_memory.rs"]
mod memory;
#[path = "host/unwind_plan.rs"]
mod plan;
#[path = "host/unwind_python.rs"]
mod python_frames;
#[path = "host/unwind_stack.rs"]
mod stack;
#[path = "host/unwind_host.rs"]
mod unwinder;
#[path = "host/unwind_world.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fastrand::Rng;

use host::Host;
use host::machine::Task;
use kept::{HEADER, HIGH_WATER, USER, wakes};
use layout::{Changes, Layout};
use stack::{AUTO, Asked, CFI, DEPTH, FP, NO_TABLE, ROOT, Stack, Truth};
use unwind::Rule;
use unwinder::{Process, Unwinder};
use world::{Backing, World};

const TGID: u32 = 77;

/// Compiled once for all tests here.
static OBJECT: LazyLock<PathBuf> = LazyLock::new(|| compiled("unwind"));
static ARM64: LazyLock<PathBuf> = LazyLock::new(|| compiled("unwind_arm64"));

fn compiled(name: &str) -> PathBuf {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.so"));
    host::compile(name).persist(&object).expect("a file");
    object
}

fn unwinder() -> Unwinder {
    unwinder_of(&OBJECT)
}

fn unwinder_of(object: &Path) -> Unwinder {
    Unwinder {
        host: Host::load(object),
    }
}

fn asked(rng: &mut Rng) -> Asked {
    let mode = [AUTO, AUTO, AUTO, FP, CFI][rng.usize(0..5)];
    let compat = rng.u32(0..8) == 0;
    // Neither listed nor to be found in the kernel.
    let is_unknown = rng.u32(0..8) == 0;
    let by_tables = mode != FP && !compat && !is_unknown;
    let deep = [125, 126, 127, 128, 129, 200];
    let depth = if rng.u32(0..6) == 0 {
        deep[rng.usize(0..6)]
    } else {
        rng.usize(1..20)
    };
    Asked {
        mode,
        compat,
        by_tables,
        unlisted: by_tables && rng.bool(),
        depth: if mode == CFI && !by_tables { 1 } else { depth },
        outside: rng.bool(),
    }
}

/// Helpers that the kernel may lack without changing a walk.
const LACKED: [&str; 2] = ["BPF_FUNC_task_pt_regs", "BPF_FUNC_get_current_task_btf"];

/// A thread of a program, whose process is listed, or in a list of before its exec, or in none; the kernel knows its mappings, if it
/// can tell.
fn prepare(
    unwinder: &Unwinder,
    rng: &mut Rng,
    world: &World,
    asked: Asked,
    generation: u32,
) -> Task {
    unwinder.forget();
    let vdso = world.modules.iter().find(|it| it.backing == Backing::Vdso);
    let start_stack = rng.u64(1..);
    let task = unwinder.thread(TGID, 0, true, start_stack, vdso.map_or(3, |it| it.begin));
    let mut layout = Layout::store(unwinder, rng, world);
    let may_list = asked.mode == FP || asked.compat || (asked.by_tables && !asked.unlisted);
    if (asked.by_tables && !asked.unlisted) || rng.bool() {
        let process = Process {
            start_stack: start_stack.wrapping_add(u64::from(!may_list)),
            generation,
            ..Process::default()
        };
        let process = layout.list(unwinder, rng, world, process);
        unwinder.process(TGID, Some(&process));
    }
    let changes = [
        Changes::Apart,
        Changes::Asked,
        Changes::InFront,
        Changes::Named,
    ][rng.usize(0..4)];
    if matches!(changes, Changes::InFront | Changes::Named) {
        unwinder.lack("inode->i_ctime_sec");
    }
    if changes == Changes::InFront {
        unwinder.lack("old->__i_ctime");
    }
    layout.plant(unwinder, rng, world, task, changes);
    if !asked.by_tables && !may_list {
        unwinder.lack("struct mm_struct, mm_mt");
    }
    for what in LACKED {
        if rng.bool() {
            unwinder.lack(what);
        }
    }
    unwinder.walk_by(asked.mode);
    task
}

/// True if the stack was sent: it is a new one. `None`: none could be made.
fn walk(unwinder: &Unwinder, rng: &mut Rng, asked: Asked, generation: u32) -> Option<bool> {
    let mut world = World::drawn(rng, asked.unlisted);
    let truth = Stack::make(&mut world, rng, asked)?;
    world.make_tables(rng);
    let task = prepare(unwinder, rng, &world, asked, generation);
    unwinder.remember(&world.memory);
    let was_sent = assert_walked(unwinder, rng, asked, &truth, task);
    if asked.by_tables && !asked.unlisted {
        assert_other_list(unwinder, &world, &truth, task);
    }
    Some(was_sent)
}

/// Finds in a list are not taken for those of a later list of the same process, by which all code here is outermost.
fn assert_other_list(unwinder: &Unwinder, world: &World, truth: &Truth, task: Task) {
    let process = unwinder.process_of(TGID).expect("it is listed");
    unwinder.rules(&vec![Rule::END.to_bytes(); world.rules.len()]);
    let generation = process.generation + (1 << 20);
    unwinder.process(
        TGID,
        Some(&Process {
            generation,
            ..process
        }),
    );
    unwinder.user_stack_from(0, task, TGID, truth.from);
    let told = unwinder.walked(0);
    assert_eq!((told.stack(), told.end), (&truth.from[..1], ROOT));
    while unwinder.take_sent().is_some() {}
}

/// A place in one of the frames or beside it, on no stack, or none.
fn drawn_outer(rng: &mut Rng, pointers: &[u64]) -> u64 {
    let near = pointers[rng.usize(..pointers.len())]
        .wrapping_sub(8)
        .wrapping_add(rng.u64(0..3) * 8);
    [near, near, near, rng.u64(..), 0][rng.usize(0..5)]
}

/// Frames, from the leaf on, are told up to the last that begins inside of a place.
fn assert_inside(told: u32, outer_sp: u64, pointers: &[u64]) {
    let inside = pointers.iter().rposition(|sp| *sp <= outer_sp);
    let frames = inside.map_or(0, |at| at as u32 + 1);
    assert_eq!(told, frames, "{outer_sp:x} on {pointers:x?}");
}

fn assert_walked(
    unwinder: &Unwinder,
    rng: &mut Rng,
    asked: Asked,
    truth: &Truth,
    task: Task,
) -> bool {
    // Registers that the kernel keeps of a thread outside of it may be anything.
    let mut registers = truth.registers;
    if asked.outside {
        for at in [unwinder::at::IP, unwinder::at::SP, unwinder::at::BP] {
            registers[at] = rng.u64(..);
        }
    }
    unwinder.enter(task, &registers);
    let unread = [0, HIGH_WATER, HIGH_WATER + 1][rng.usize(0..3)];
    unwinder.ring(false, unread);
    let (now, cpu, slot) = (rng.u64(..), rng.u32(0..8), rng.u32(0..4));
    unwinder.set(now, cpu, task);
    let before = unwinder.lost();
    let outer_sp = drawn_outer(rng, &truth.pointers);
    unwinder.compare(slot, outer_sp);
    let walk = || {
        if asked.outside {
            unwinder.user_stack_from(slot, task, TGID, truth.from)
        } else {
            unwinder.user_stack(slot, task, TGID)
        }
    };
    let id = walk();
    let told = unwinder.walked(slot);
    let same = std::iter::zip(told.stack(), &truth.addresses).take_while(|(a, b)| a == b);
    let same = same.count();
    assert!(
        told.stack() == truth.addresses && told.end == truth.end,
        "{asked:?}: {} frames of {}, {same} alike, end {} for {}, behind {:x?}",
        told.depth,
        truth.addresses.len(),
        told.end,
        truth.end,
        &truth.plans[same.saturating_sub(2)..same]
    );
    assert_inside(unwinder.inside(slot), outer_sp, &truth.pointers);
    let lacks_tables =
        asked.mode != FP && !asked.compat && (!asked.by_tables || truth.end == NO_TABLE);
    let sent = unwinder.take_sent();
    let was_sent = sent.is_some();
    if let Some((sent, [bytes, flags])) = sent {
        assert_eq!(
            (sent.id, sent.time_ns, sent.tgid, sent.kind),
            (id, now, TGID, USER)
        );
        assert_eq!(sent.stack(), truth.addresses);
        assert_eq!(bytes, HEADER + 8 * truth.addresses.len() as u64);
        assert_eq!(flags, wakes(lacks_tables, unread), "{asked:?}");
    }
    let searched = unwinder.searches();
    assert_eq!(walk(), id, "the second time");
    assert!(unwinder.take_sent().is_none(), "sent twice");
    // Rules are kept by address; of several, one may take another's place.
    let is_one = truth.addresses.iter().all(|pc| *pc == truth.addresses[0]);
    let is_kept = unwinder.searches() == searched;
    assert!(
        is_kept || !is_one || asked.unlisted,
        "{asked:?}: searched again"
    );
    let cut = unwinder.lost()[3] - before[3];
    assert_eq!(cut, if truth.end == DEPTH { 2 } else { 0 });
    was_sent
}

#[test]
fn walks_find_the_frames_that_the_stacks_were_made_of() {
    let unwinder = unwinder();
    let (mut made, mut sent) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(seed);
        let asked = asked(&mut rng);
        let was_sent = walk(&unwinder, &mut rng, asked, seed as u32 + 1);
        made += u64::from(was_sent.is_some());
        sent += u64::from(was_sent == Some(true));
    }
    assert!(made > 1_500, "{made} stacks of 2000");
    assert!(sent > 1_000, "{sent} of {made} sent");
}
