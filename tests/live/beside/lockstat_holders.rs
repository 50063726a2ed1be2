//! lockstat's holders and releasers against programs that know theirs, and the log of the kernel's events.

use oracle::futex::{Wait, waits};
use oracle::{Bracket, Engine, Logs};

use crate::beside::lockstat_user::{PTHREAD, locks};
use crate::found::unended;
use crate::lockstat_played::{named, waited};
use crate::prelude::*;
use crate::traced::logged;

const CHAIN: &str = include_str!("../../workloads/locks/chain.c");

/// Runs a program under lockstat: what it says of itself, what lockstat says, and what the kernel did. Somebody else has an eye on the
/// same calls, of another process, already.
fn run(source: &str, options: &str) -> (Vec<Value>, Output, Logs) {
    let program = locks(source, "");
    let mut workload = program.start("");
    let args = format!("-U -p {} {options}", workload.pid());
    let neighbour = Tool::attached("lockstat", format!("-U -p {}", std::process::id()));
    let start = || Tool::start("lockstat", args);
    let (output, said, logs) = logged(
        &[Engine::Scheduler, Engine::LockCalls],
        start,
        &mut workload,
    );
    workload.finish();
    neighbour.end();
    (said, output, logs)
}

/// All waits of a thread in the log.
fn waits_of(logs: &Logs, tid: u32) -> Vec<Wait> {
    waits(logs, tid, u64::MAX).expect("logs that agree")
}

/// `sizeof(pthread_rwlock_t)`
const RWLOCK_BYTES: u64 = 56;

/// Waits of a thread for a lock, one a round.
fn waits_for(lock: &Value, logs: &Logs, thread: &Value) -> Vec<Wait> {
    let at = address(lock);
    let mut waits = waits_of(logs, id(thread, "tid"));
    // A rwlock's waiters sleep on a word inside it.
    waits.retain(|wait| (at..at + RWLOCK_BYTES).contains(&wait.address));
    waits
}

/// Each of three locks is held by the thread that waits for the next one, the last by one that waits for no lock.
#[test]
fn a_holder_that_waits_for_a_lock_itself_is_asleep() {
    let _machine = Machine::beside();
    let (threads, output, logs) = run(CHAIN, "-j");
    let report = output.report();
    unended(&report);
    let names = ["lock_first", "lock_second", "lock_third"];
    for (at, name) in names.into_iter().enumerate() {
        let (waiter, holder) = (&threads[at], &threads[at + 1]);
        let lock = named(list(&report, "locks"), name);
        let waits = waits_for(lock, &logs, waiter);
        let truth: Bracket = waits.iter().map(|wait| wait.pair).collect();
        let found = waited([lock], number(waiter, "tid"));
        assert_bracketed(name, found, &truth, lock);
        let holders = list(lock, "holders");
        for one in holders {
            assert_eq!(one["tid"], holder["tid"], "{lock:#}");
            assert_eq!(one["comm"], holder["name"], "{lock:#}");
            assert_eq!(one["known_as"], "owner", "{lock:#}");
        }
        assert_eq!(sum(holders, "waits"), found.0, "{lock:#}");
        let asleep = sum(holders, "blocked");
        let least = number(holder, "asleep");
        assert_within("asleep", asleep, least..=found.0, lock);
        let awake = sum(holders, "on_cpu") + sum(holders, "runnable");
        assert_eq!(asleep + awake, found.0, "{lock:#}");
    }
}

/// Value of the folded lines that have all of `parts`, in this order, µs; their number.
fn folded_us(text: &str, parts: &[&str]) -> (u64, u64) {
    let values = text.lines().filter_map(|line| {
        let (stack, value) = line.rsplit_once(' ')?;
        let mut rest = stack;
        for part in parts {
            rest = &rest[rest.find(part)? + part.len()..];
        }
        value.parse::<u64>().ok()
    });
    values.fold((0, 0), |(sum, lines), value| (sum + value, lines + 1))
}

#[test]
fn whoever_releases_a_lock_stands_on_its_head_behind_the_waiter() {
    let _machine = Machine::beside();
    let (said, output, logs) = run(PTHREAD, "--folded --waker");
    let writers = ["lock_written", "lock_readers", "lock_between"];
    for (names, waiter) in [
        (&writers[..], "take_write;"),
        (&["lock_read"], "take_read;"),
    ] {
        let of_names = |thread: &&Value| names.contains(&text(thread, "name"));
        let threads = said.iter().filter(of_names);
        let waits = threads.flat_map(|thread| waits_of(&logs, id(thread, "waiter")));
        let truth: Bracket = waits.map(|wait| wait.pair).collect();
        let behind = ["release_rwlock;", "main;", ";locks"];
        let parts = [&["locks;", waiter, ";--;"], &behind[..]].concat();
        let (us, lines) = folded_us(&output.stdout, &parts);
        // Each is rounded.
        let least = (truth.least_ns / 1000).saturating_sub(lines);
        let most = truth.most_ns / 1000 + lines;
        assert_within(format!("{waiter} us"), us, least..=most, &output.stdout);
    }
    // Who gave up was not woken by anybody.
    let (alone_us, _) = folded_us(&output.stdout, &["take_in_vain;"]);
    assert!(alone_us > 0, "{}", output.stdout);
    assert_eq!(folded_us(&output.stdout, &["take_in_vain;", ";--;"]).0, 0);
}
