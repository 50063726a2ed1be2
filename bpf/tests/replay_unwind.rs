//! The unwinder's programs on random programs and stacks of which the walk is known, and on memory that holds anything.

#[path = "host/unwind_ends.rs"]
mod ends;
#[path = "host/unwind_forms.rs"]
mod forms;
#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;
#[path = "host/unwind_kept.rs"]
mod kept;
#[path = "host/unwind_kernels.rs"]
mod kernels;
#[path = "host/unwind_layout.rs"]
mod layout;
#[path = "host/unwind_memory.rs"]
mod memory;
#[path = "host/unwind_plan.rs"]
mod plan;
#[path = "host/unwind_stack.rs"]
mod stack;
#[path = "host/unwind_host.rs"]
mod unwinder;
#[path = "host/unwind_world.rs"]
mod world;

use fastrand::Rng;

use host::Host;
use layout::{Changes, Layout};
use stack::{AUTO, Asked, CFI, FP, Stack, Truth};
use unwinder::{Process, Unwinder};
use world::{Backing, World};

const TGID: u32 = 77;

fn unwinder() -> Unwinder {
    let dir = tempfile::tempdir().expect("a directory");
    let object = host::compile(dir.path(), "unwind");
    Unwinder {
        host: Host::load(&object),
    }
}

fn asked(rng: &mut Rng) -> Asked {
    let mode = [AUTO, AUTO, AUTO, FP, CFI][rng.usize(0..5)];
    let compat = rng.u32(0..8) == 0;
    // Neither listed nor to be found in the kernel.
    let is_unknown = rng.u32(0..8) == 0;
    let by_tables = mode != FP && !compat && !is_unknown;
    let deep = [125, 126, 127, 128, 129, 200];
    let depth = if rng.u32(0..6) == 0 { deep[rng.usize(0..6)] } else { rng.usize(1..20) };
    Asked {
        mode,
        compat,
        by_tables,
        unlisted: by_tables && rng.bool(),
        depth: if mode == CFI && !by_tables { 1 } else { depth },
        outside: rng.bool(),
    }
}

fn walk(unwinder: &Unwinder, rng: &mut Rng, asked: Asked, generation: u32) -> Option<()> {
    let mut world = World::drawn(rng, asked.unlisted);
    let truth = Stack::make(&mut world, rng, asked)?;
    world.make_tables(rng);
    unwinder.forget();
    let vdso = world.modules.iter().find(|it| it.backing == Backing::Vdso);
    let start_stack = rng.u64(1..);
    let task = unwinder.thread(TGID, 0, true, start_stack, vdso.map_or(3, |it| it.begin));
    let mut layout = Layout::store(unwinder, rng, &world);
    // One that is listed wrongly is one that is not.
    let is_stale = asked.unlisted || !asked.by_tables;
    if !is_stale || rng.bool() {
        let process = Process {
            start_stack: start_stack.wrapping_add(u64::from(is_stale)),
            generation,
            ..Process::default()
        };
        let process = layout.list(unwinder, rng, &world, process);
        unwinder.process(TGID, Some(&process));
    }
    let changes = [Changes::Apart, Changes::Asked, Changes::InFront][rng.usize(0..3)];
    if changes == Changes::InFront {
        unwinder.lack("inode->i_ctime_sec");
    }
    layout.plant(unwinder, rng, &world, task, changes);
    if !asked.by_tables {
        unwinder.lack("struct mm_struct, mm_mt");
    }
    unwinder.walk_by(asked.mode);
    unwinder.remember(&world.memory);
    assert_walked(unwinder, rng, asked, &truth, task);
    Some(())
}

fn assert_walked(unwinder: &Unwinder, rng: &mut Rng, asked: Asked, truth: &Truth, task: host::machine::Task) {
    unwinder.set(1, rng.u32(0..8), task);
    let slot = rng.u32(0..4);
    // What the kernel keeps of a thread outside of it may be anything.
    let mut registers = truth.registers;
    if asked.outside {
        for at in [unwinder::at::IP, unwinder::at::SP, unwinder::at::BP] {
            registers[at] = rng.u64(..);
        }
    }
    unwinder.enter(task, &registers);
    for turn in 0..2 {
        let id = if asked.outside {
            unwinder.user_stack_from(slot, task, TGID, truth.from)
        } else {
            unwinder.user_stack(slot, task, TGID)
        };
        let sent = unwinder.take_sent();
        let told = unwinder.walked(slot);
        let same = std::iter::zip(told.stack(), &truth.addresses).take_while(|(a, b)| a == b);
        let same = same.count();
        let last = truth.addresses[same.saturating_sub(1)];
        assert!(
            told.stack() == truth.addresses && told.end == truth.end,
            "turn {turn}, {asked:?}: {} frames of {}, {same} alike, end {} for {}; behind {last:#x}, {:x?}",
            told.depth,
            truth.addresses.len(),
            told.end,
            truth.end,
            &truth.plans[same.saturating_sub(2)..same]
        );
        assert!(id > 1);
        assert!(sent.is_some() || turn == 1 || truth.addresses.len() < 3, "not sent");
    }
}

#[test]
fn walks_are_those_that_the_stacks_were_made_for() {
    let unwinder = unwinder();
    let mut made = 0;
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(seed);
        let asked = asked(&mut rng);
        made += u64::from(walk(&unwinder, &mut rng, asked, seed as u32 + 1).is_some());
    }
    assert!(made > 1_500, "{made} stacks of 2000");
}
