//! lockstat's programs for kernel locks on random orders of events, against the model that live tests hold the tool to.

#[expect(dead_code, reason = "it has a machine for switches, too")]
mod host;
#[path = "host/locks.rs"]
mod locks;

use std::collections::HashMap;

use host::Host;
use host::buckets::bucket;
use locks::{CPUS, Lock, Locks};
use oracle::{Bracket, Event, Kind, Logs, kernel_lock};

/// Compares the model with the programs for one lock.
fn assert_lock(locks: &Locks, at: usize, lengths: &[u64], seed: u64) {
    let Lock { address, flags, .. } = locks.locks[at];
    let (parts, total_ns) = (locks.parts[at], lengths.iter().sum::<u64>());
    let found = locks.host.told::<[u64; 7]>("host_sums", (address, flags));
    let expected = [
        lengths.len() as u64,
        total_ns,
        lengths.iter().copied().max().unwrap_or(0),
        parts.spin_ns,
        total_ns - parts.spin_ns,
        parts.given_up,
        parts.open,
    ];
    assert_eq!(found, expected, "seed {seed}, lock {at}");
    let mut buckets: HashMap<_, (u64, u64)> = HashMap::new();
    for ns in lengths {
        buckets.entry(bucket(*ns)).or_insert((*ns, 0)).1 += 1;
    }
    for (ns, count) in buckets.into_values() {
        let found = locks.host.ask::<u64>("host_bucket", (address, flags, ns));
        assert_eq!(
            found, count,
            "seed {seed}, lock {at}, waits of about {ns} ns"
        );
    }
}

/// The model goes through its logs once for each lock.
fn of_thread(logs: &Logs, tid: u32) -> Logs {
    let is_of = |event: &&Event| match event.kind {
        Kind::Contention { tid: waiter, .. } | Kind::Contended { tid: waiter, .. } => waiter == tid,
        _ => false,
    };
    let only = |events: &[Event]| events.iter().filter(is_of).copied().collect();
    Logs {
        before: only(&logs.before),
        after: only(&logs.after),
        missed: logs.missed,
    }
}

fn assert_the_same(locks: &mut Locks, seed: u64) {
    let logs = locks.close();
    let mut by_lock: HashMap<u64, Vec<u64>> = HashMap::new();
    for (at, thread) in locks.threads.iter().enumerate() {
        let waits = kernel_lock::waits(&of_thread(&logs, thread.tid), thread.tid);
        assert!(waits.unsure.is_empty(), "the same log");
        for lock in &locks.locks {
            let none = Vec::new();
            let pairs = waits.by_lock.get(&(lock.address as u64)).unwrap_or(&none);
            let truth: Bracket = pairs.iter().copied().collect();
            by_lock
                .entry(lock.address as u64)
                .or_default()
                .extend(pairs.iter().map(oracle::Pair::least_ns));
            let tid = if at < CPUS { 0 } else { thread.tid };
            let mut found = [0; 3];
            // An idle task's locks are its CPU's.
            if at >= CPUS || !pairs.is_empty() {
                locks.host.tell(
                    "host_waiter",
                    (lock.address, lock.flags, tid, found.as_mut_ptr()),
                );
            }
            let longest_ns = pairs.iter().map(oracle::Pair::least_ns).max().unwrap_or(0);
            assert_eq!(
                found,
                [truth.count, truth.least_ns, longest_ns],
                "seed {seed}, thread {at}"
            );
        }
    }
    for at in 0..locks.locks.len() {
        assert_lock(locks, at, &by_lock[&(locks.locks[at].address as u64)], seed);
    }
    let lost = locks.host.told::<[u64; 3]>("host_lost", ());
    assert_eq!(lost, [locks.hidden, locks.unbegun, 0], "seed {seed}");
}

#[test]
fn waits_for_kernel_locks_are_the_models() {
    let object = host::compile("lockstat");
    for seed in 0..100 {
        let mut locks = Locks::new(Host::load(&object), seed);
        for _ in 0..10_000 {
            locks.step();
        }
        assert_the_same(&mut locks, seed);
    }
}
