//! runqlat's collection in windows: what begins between two of them is found by the kernel's stamps.

use std::collections::HashSet;

use crate::asked::{Counted, Waiting, call, told_count};
use crate::host::machine::{Machine, State, Task, play};
use crate::waiting_ns;

/// `HOST_CLOCK_OFFSET`
const CLOCK_OFFSET_NS: u64 = 777;

fn at(machine: &Machine, name: &str, ns: u64) {
    // SAFETY: the type of such functions of host/runqlat.c.
    unsafe { machine.host.function::<unsafe extern "C" fn(u64)>(name)(ns) }
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
    for _ in 0..200 {
        machine.step();
    }
    call(machine, "host_next_clock");
    machine.leave_to_user_space();
    for thread in machine.alive() {
        // SAFETY: the type of host/runqlat.c; the task lives.
        unsafe {
            type Find = unsafe extern "C" fn(Task);
            machine.host.function::<Find>("host_find_wait")(thread.task);
        }
        let has_stayed = machine.times_left(thread.tid) == left[thread.tid as usize];
        if thread.state != State::Queued {
            waiting.since.remove(&thread.tid);
        } else if !(has_stayed && waiting.since.contains_key(&thread.tid)) {
            waiting.since.insert(thread.tid, (thread.queued_ns, false));
        }
    }
}

/// All that happened until now was in the first window of several.
fn assert_next_window(machine: &mut Machine, seed: u64) {
    call(machine, "host_begin_windows");
    for _ in 0..300 {
        machine.step();
    }
    let mut waiting = Waiting::default();
    let first = see(machine, 0, &mut waiting);
    assert_eq!(told_count(machine, "host_clock_offset"), CLOCK_OFFSET_NS);
    machine.now += 1;
    at(machine, "host_end", machine.now);
    // It is over, and the programs are still there.
    let from_ns = machine.now;
    for _ in 0..50 {
        machine.step();
    }
    see(machine, from_ns, &mut waiting);
    wait_unseen(machine, &mut waiting);
    machine.is_detached = false;
    let from_ns = machine.now + 1;
    for _ in 0..20 {
        machine.step();
    }
    see(machine, from_ns, &mut waiting);
    machine.now += 1;
    at(machine, "host_begin_next", machine.now);
    let from_ns = machine.now;
    for _ in 0..1_000 {
        machine.step();
    }
    let second = see(machine, from_ns, &mut waiting);
    assert_eq!(Counted::whole(machine, 0), first, "seed {seed}");
    assert_eq!(Counted::whole(machine, 1), second, "seed {seed}");
    machine.now += 1;
    for thread in machine.alive() {
        let since = waiting.since.get(&thread.tid);
        let open = since.filter(|_| thread.state == State::Queued);
        let open_ns = open.map_or(0, |(since_ns, _)| machine.now - since_ns);
        assert_eq!(
            waiting_ns(machine, thread),
            open_ns,
            "seed {seed}, thread {}",
            thread.tid
        );
    }
}

#[test]
fn next_window_knows_what_began_before() {
    play("runqlat", assert_next_window);
}
