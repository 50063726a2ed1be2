//! offcputime's programs on random orders of events, with hidden switches, against the model that live tests hold the tool to.

mod host;

use std::collections::{HashMap, HashSet};

use host::machine::{Life, Machine, Task, play};
use oracle::{Bracket, Kind, Logs, Span, offcpu, run_queue};

/// Of a thread: times off the CPU that are over, and that the tool can know. `sched_exit_tp` is not played.
struct Truth {
    off: Bracket,
    /// What of it was on a run queue.
    queued_ns: u64,
    /// Times whose end no switch showed, or whose wakeup was not seen.
    out_of_order: u64,
}

impl Truth {
    fn of(logs: &Logs, life: Life, end_ns: u64) -> Self {
        let (tid, edges) = (life.tid, life.begin_ns..end_ns);
        let absences = offcpu::absences(logs, tid, &edges).expect("the same log");
        let waits = run_queue::waits(logs, tid).expect("the same log");
        let (hidden, seen): (Vec<&Span>, Vec<&Span>) =
            absences.iter().partition(|span| span.is_hidden);
        let over = seen.iter().filter(|span| span.pair.early.end_ns < end_ns);
        let off: Bracket = over.map(|span| span.pair).collect();
        let queued: Bracket = waits
            .iter()
            .filter(|span| !span.is_hidden)
            .map(|span| span.pair)
            .collect();
        Self {
            queued_ns: queued.least_ns,
            out_of_order: hidden.len() as u64 + off.count - queued.count,
            off,
        }
    }
}

/// What the model says, and what the programs say.
fn assert_the_same(machine: &mut Machine, seed: u64) {
    machine.wake_all();
    let mut out_of_order = 0;
    let end_ns = machine.now + 1;
    for thread in machine.lives() {
        let truth = Truth::of(
            &machine.logs(thread.begin_ns..=thread.end_ns),
            thread,
            end_ns,
        );
        let (mut count, mut sum_ns, mut queued_ns) = (0, 0, 0);
        // SAFETY: the type of host/offcputime.c.
        unsafe {
            type Off = unsafe extern "C" fn(u32, *mut u64, *mut u64, *mut u64);
            machine.host.function::<Off>("host_off")(
                thread.tid,
                &raw mut count,
                &raw mut sum_ns,
                &raw mut queued_ns,
            );
        }
        assert!(
            truth.off.least_ns == truth.off.most_ns && truth.off.holds(count, sum_ns),
            "seed {seed}, thread {}: {count} times, {sum_ns} ns; {:?}",
            thread.tid,
            truth.off
        );
        assert_eq!(
            queued_ns, truth.queued_ns,
            "seed {seed}, thread {}",
            thread.tid
        );
        out_of_order += truth.out_of_order;
    }
    // SAFETY: the type of host/offcputime.c.
    let found = unsafe {
        machine
            .host
            .function::<unsafe extern "C" fn() -> u64>("host_out_of_order")()
    };
    assert_eq!(found, out_of_order, "seed {seed}");
    // SAFETY: the type of host/offcputime.c.
    let unreported = unsafe {
        machine
            .host
            .function::<unsafe extern "C" fn() -> u64>("host_unreported")()
    };
    assert_eq!(unreported, 0, "seed {seed}");
    assert_exits_are_counted(machine, seed);
    assert_phases_add_up(machine, seed);
}

/// Every moment of a target is in one phase, and those on a CPU are from a switch to it until the one away from it.
fn assert_phases_add_up(machine: &Machine, seed: u64) {
    let (mut oncpu_ns, mut all_ns) = (0, 0);
    // SAFETY: the types of host/offcputime.c; the tasks live.
    let (living_ns, negative) = unsafe {
        type Phases = unsafe extern "C" fn(*mut u64, *mut u64);
        machine.host.function::<Phases>("host_phases")(&raw mut oncpu_ns, &raw mut all_ns);
        let accounted = machine
            .host
            .function::<unsafe extern "C" fn(Task) -> u64>("host_accounted");
        let negative = machine
            .host
            .function::<unsafe extern "C" fn() -> u64>("host_negative");
        let living_ns: u64 = machine.alive().map(|thread| accounted(thread.task)).sum();
        (living_ns, negative())
    };
    let exited = machine.exited.iter();
    let exited_ns: u64 = exited.map(|life| life.end_ns - life.begin_ns).sum();
    assert_eq!(oncpu_ns, model_oncpu_ns(machine), "seed {seed}");
    assert_eq!(all_ns, exited_ns + living_ns, "seed {seed}");
    assert_eq!(negative, 0, "seed {seed}");
}

fn model_oncpu_ns(machine: &Machine) -> u64 {
    let targets: HashSet<u32> = machine.lives().map(|life| life.tid).collect();
    let (mut since, mut oncpu_ns) = (HashMap::new(), 0);
    for event in machine.logs(0..=machine.now).before {
        let Kind::Switch { prev, next, .. } = event.kind else {
            continue;
        };
        oncpu_ns += since.remove(&prev).map_or(0, |since| event.ns - since);
        if targets.contains(&next) {
            since.insert(next, event.ns);
        }
    }
    oncpu_ns
}

fn assert_exits_are_counted(machine: &Machine, seed: u64) {
    let (mut threads, mut lifetime_ns) = (0, 0);
    // SAFETY: the type of host/offcputime.c.
    unsafe {
        type Exited = unsafe extern "C" fn(*mut u64, *mut u64);
        machine.host.function::<Exited>("host_exited")(&raw mut threads, &raw mut lifetime_ns);
    }
    let lifetimes = machine
        .exited
        .iter()
        .map(|life| life.end_ns - life.begin_ns);
    assert_eq!(
        (threads, lifetime_ns),
        (machine.exited.len() as u64, lifetimes.sum()),
        "seed {seed}"
    );
}

#[test]
fn times_off_the_cpu_are_the_models() {
    play("offcputime", assert_the_same);
}
