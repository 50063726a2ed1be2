//! runqlat's collection in windows: what begins between two of them is found by the kernel's stamps.

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;

use fastrand::Rng;

use crate::asked::{Counted, Waiting, call};
use crate::host;
use crate::host::machine::{Machine, State, Task, Thread, play};
use crate::waiting_ns;

/// `HOST_CLOCK_OFFSET`
const CLOCK_OFFSET_NS: u64 = 777;

fn at(machine: &Machine, name: &str, ns: u64) {
    machine.host.tell(name, (ns,))
}

/// The events that were seen from there on, of which the first ones are known already.
fn see(machine: &Machine, from_ns: u64, waiting: &mut Waiting) -> Counted {
    let mut counted = Counted::default();
    let targets: HashSet<u32> = machine.lives().map(|life| life.tid).collect();
    for event in machine.logs(from_ns..=machine.now).before {
        let ended = waiting.see(&event);
        if let Some(wait) = ended.filter(|wait| targets.contains(&wait.tid)) {
            counted.add(wait.ns);
        }
    }
    counted
}

/// No program is attached for a time; then the next window looks for waits that began meanwhile.
fn wait_unseen(machine: &mut Machine, waiting: &mut Waiting) {
    machine.is_detached = true;
    let left: Vec<usize> = (0..=machine.last_tid)
        .map(|tid| machine.times_left(tid))
        .collect();
    machine.steps(200);
    call(machine, "host_next_clock");
    machine.leave_to_user_space();
    for thread in machine.alive() {
        machine.host.tell("host_find_wait", (thread.task,));
        let has_stayed = machine.times_left(thread.tid) == left[thread.tid as usize];
        if thread.state != State::Queued {
            waiting.since.remove(&thread.tid);
        } else if !(has_stayed && waiting.since.contains_key(&thread.tid)) {
            waiting.since.insert(thread.tid, (thread.queued_ns, false));
        }
    }
    machine.is_detached = false;
}

/// From the end of a window to the beginning of the next one.
fn pass_on(machine: &mut Machine, waiting: &mut Waiting, rng: &mut Rng) {
    // The window is over, and the programs are still there.
    let from_ns = machine.now;
    machine.steps(rng.u32(0..50));
    see(machine, from_ns, waiting);
    assert_waiting(machine, waiting);
    wait_unseen(machine, waiting);
    let from_ns = machine.now + 1;
    machine.steps(rng.u32(0..20));
    see(machine, from_ns, waiting);
    machine.now += 1;
    at(machine, "host_begin_next", machine.now);
}

/// A window that began with an event at `from_ns`, at the earliest, ends now.
fn assert_window_ends(machine: &mut Machine, from_ns: u64, half: u32, waiting: &mut Waiting) {
    let counted = see(machine, from_ns, waiting);
    machine.now += 1;
    at(machine, "host_end", machine.now);
    assert_eq!(Counted::whole(machine, half), counted);
    assert_waiting(machine, waiting);
}

/// Threads that wait now are told, inside a window or not.
fn assert_waiting(machine: &Machine, waiting: &Waiting) {
    for thread in machine.alive() {
        let since = waiting.since.get(&thread.tid);
        let open = since.filter(|_| thread.state == State::Queued);
        let open_ns = open.map_or(0, |(since_ns, _)| machine.now - since_ns);
        assert_eq!(
            waiting_ns(machine, thread),
            open_ns,
            "thread {}",
            thread.tid
        );
    }
}

/// Number for each seed.
const WINDOWS: u32 = 100;

/// All that happened until now was before the first window of several.
fn assert_windows(machine: &mut Machine, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    machine.host.write("in_windows", 1_u32);
    let mut waiting = Waiting::default();
    let mut from_ns = 0;
    for window in 0..WINDOWS {
        // Enough to learn the clock of the kernel's stamps, some of which are old when a thread is woken that waits.
        machine.steps(rng.u32(150..300));
        let offset_ns = machine.host.read::<u64>("clock_offset");
        assert_eq!(offset_ns, CLOCK_OFFSET_NS);
        assert_window_ends(machine, from_ns, window % 2, &mut waiting);
        pass_on(machine, &mut waiting, &mut rng);
        from_ns = machine.now;
    }
}

/// 10,000 windows for all seeds together.
#[test]
fn each_window_knows_what_began_before() {
    play("runqlat", assert_windows);
}

/// The kernel calls an iterator once more when there is no task left.
#[test]
fn iterators_end_without_a_task() {
    let machine = Machine::new(&host::compile("runqlat"), 1, 0);
    for name in ["host_seed", "host_find_wait"] {
        machine.host.tell(name, (ptr::null_mut::<c_void>(),));
    }
    let told = machine
        .host
        .ask::<u64>("host_waiting", (ptr::null_mut::<c_void>(),));
    assert_eq!(told, 0);
}

/// No program is attached for a time. Gives the threads that wait then, and left their CPUs meanwhile.
fn queued_unseen(machine: &mut Machine) -> Vec<(u32, Task)> {
    let left: Vec<usize> = (0..=machine.last_tid)
        .map(|tid| machine.times_left(tid))
        .collect();
    machine.is_detached = true;
    machine.steps(200);
    machine.is_detached = false;
    let waits = |thread: &&Thread| {
        let has_left = machine.times_left(thread.tid) > left[thread.tid as usize];
        thread.state == State::Queued && has_left
    };
    let waiting = machine.alive().filter(waits);
    waiting.map(|thread| (thread.tid, thread.task)).collect()
}

/// Waits that are found after stamps of that time, as they are told 100 ns later.
fn told_later(machine: &mut Machine, waiting: &[(u32, Task)], stamp_ns: u64) -> Vec<u64> {
    machine.leave_to_user_space();
    for (_, task) in waiting {
        machine.host.tell("host_queued", (*task, stamp_ns));
        machine.host.tell("host_find_wait", (*task,));
    }
    machine.now += 100;
    let is_one = |thread: &&Thread| waiting.iter().any(|(tid, _)| *tid == thread.tid);
    let waiting = machine.alive().filter(is_one);
    waiting.map(|thread| waiting_ns(machine, thread)).collect()
}

/// Without a clock, or a stamp, nothing is known of a wait; one that seems to come has just begun.
#[test]
fn stamps_count_where_their_clock_is_known() {
    let object = host::compile("runqlat");
    for seed in 0..50 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.host.write("in_windows", 1_u32);
        let waiting = queued_unseen(&mut machine);
        let stamp_ns = machine.now - 50;
        let told = told_later(&mut machine, &waiting, stamp_ns);
        assert_eq!(told, vec![0; waiting.len()], "seed {seed}: no clock");
        machine.steps(300);
        call(&machine, "host_next_clock");
        for (after_ns, truth_ns) in [(None, 0), (Some(10), 100)] {
            let waiting = queued_unseen(&mut machine);
            let stamp_ns = after_ns.map_or(0, |after_ns| machine.now + after_ns);
            let told = told_later(&mut machine, &waiting, stamp_ns);
            assert_eq!(
                told,
                vec![truth_ns; waiting.len()],
                "seed {seed}, {after_ns:?}"
            );
        }
    }
}
