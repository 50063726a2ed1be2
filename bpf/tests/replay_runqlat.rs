//! runqlat's programs on random orders of events, with hidden switches, against the model that live tests hold the tool to.

mod host;

use host::machine::{Machine, play};
use oracle::{Bracket, behind, run_queue};

/// What the model says, and what the programs say.
fn assert_the_same(machine: &mut Machine, seed: u64) {
    machine.wake_all();
    let logs = machine.logs(0..=machine.now);
    let tids: Vec<u32> = machine.lives().map(|life| life.tid).collect();
    let spans = machine.lives().flat_map(|life| {
        run_queue::waits(&machine.logs(life.begin_ns..=life.end_ns), life.tid)
            .expect("the same log")
    });
    let (hidden, seen): (Vec<_>, Vec<_>) = spans.partition(|span| span.is_hidden);
    let truth: Bracket = seen.iter().map(|span| span.pair).collect();
    let (mut count, mut sum_ns) = (0, 0);
    // SAFETY: the types of host/runqlat.c.
    let unseen = unsafe {
        type Counted = unsafe extern "C" fn(*mut u64, *mut u64);
        machine.host.function::<Counted>("host_counted")(&raw mut count, &raw mut sum_ns);
        machine
            .host
            .function::<unsafe extern "C" fn() -> u64>("host_unseen")()
    };
    assert!(
        truth.least_ns == truth.most_ns && truth.holds(count, sum_ns),
        "seed {seed}: {count} waits, {sum_ns} ns; {truth:?}"
    );
    assert_eq!(unseen, hidden.len() as u64, "seed {seed}");
    let culprits = behind::culprits(&logs, &tids).expect("the same log");
    // 0 stands for turns that are too long ago.
    for tid in 0..=machine.last_tid {
        let truth = culprits.get(&tid).copied().unwrap_or_default();
        let (mut waits, mut ns) = (0, 0);
        // SAFETY: the type of host/runqlat.c.
        unsafe {
            type Caused = unsafe extern "C" fn(u32, *mut u64, *mut u64);
            machine.host.function::<Caused>("host_caused")(tid, &raw mut waits, &raw mut ns);
        }
        assert!(
            truth.holds(waits, ns),
            "seed {seed}, thread {tid}: {waits} waits, {ns} ns; {truth:?}"
        );
    }
}

#[test]
fn waits_and_whom_they_were_behind_are_the_models() {
    play("runqlat", assert_the_same);
}
