//! lockstat's wait chains and releasers against programs that know theirs, and the log of the kernel's events.

use oracle::futex::{Wait, waits};
use oracle::{Bracket, Engine, Logs};

use crate::beside::lockstat_user::{PTHREAD, locks};
use crate::lockstat_played::named;
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

/// Its waits for the lock that is a variable of this name, one a round.
fn waits_for(report: &Value, logs: &Logs, thread: &Value, variable: &str) -> Vec<Wait> {
    let at = address(named(list(report, "locks"), variable));
    let mut waits = waits_of(logs, id(thread, "tid"));
    // A rwlock's waiters sleep on a word inside it.
    waits.retain(|wait| (at..at + RWLOCK_BYTES).contains(&wait.address));
    waits
}

#[test]
fn a_chain_of_three_locks_has_its_threads_in_order_and_their_times() {
    let _machine = Machine::beside();
    let (threads, output, logs) = run(CHAIN, "-j --strict");
    let report = output.report();
    let chains = list(&report, "chains");
    let begins_with = |tid: &Value, chain: &&Value| chain["links"][0]["waiter"]["tid"] == *tid;
    let front = &threads[0]["tid"];
    let found: Vec<&Value> = chains
        .iter()
        .filter(|one| begins_with(front, one))
        .collect();
    let [chain] = found[..] else {
        panic!("one chain from the front: {chains:#?}");
    };
    let links = list(chain, "links");
    assert_eq!(links.len(), 3, "{chain:#}");
    let names = ["lock_first", "lock_second", "lock_third"];
    let mut before: Option<Vec<Wait>> = None;
    for (at, link) in links.iter().enumerate() {
        let (thread, next, lock) = (&threads[at], &threads[at + 1], names[at]);
        assert!(text(link, "lock").ends_with(&format!(": {lock}")), "{link}");
        assert_eq!(link["waiter"]["comm"], thread["name"], "{chain:#}");
        assert_eq!(link["waiter"]["tid"], thread["tid"], "{chain:#}");
        assert_eq!(link["holder"]["tid"], next["tid"], "{chain:#}");
        let own = waits_for(&report, &logs, thread, lock);
        // Only while the one in front waited, too.
        let meanwhile = before.as_ref().unwrap_or(&own).iter().zip(&own);
        let truth: Bracket = meanwhile
            .filter_map(|(front, own)| front.pair.common(&own.pair))
            .collect();
        let found = (number(chain, "waits"), number(link, "ns"));
        assert_bracketed(lock, found, &truth, chain);
        before = Some(own);
    }
    // Whoever waits for the keeper begins no chain: it waits for no lock.
    let back = &threads[2]["tid"];
    assert!(
        !chains.iter().any(|one| begins_with(back, &one)),
        "{chains:#?}"
    );
}

#[test]
fn a_chain_is_told_in_words() {
    let _machine = Machine::beside();
    let (threads, output, _) = run(CHAIN, "");
    let tid = |at: usize| number(&threads[at], "tid");
    let lines: Vec<&str> = output.stdout.lines().map(str::trim).collect();
    let is_title = |line: &&str| line.ends_with("WHO WAITED FOR WHOM");
    let at = lines.iter().position(is_title).expect("a title");
    let first = format!("front {} for mutex locks.bss: lock_first", tid(0));
    assert!(lines[at + 1].ends_with(&first), "{}", output.stdout);
    // A line that would be too long goes on in the next one.
    let end = lines[at..].iter().position(|line| line.is_empty());
    let rest = lines[at + 2..at + end.expect("an end")].join(" ");
    let told: Vec<&str> = rest.split("held by ").skip(1).collect();
    for (line, (name, tid, lock)) in told.iter().zip([
        ("middle", tid(1), "mutex locks.bss: lock_second"),
        ("back", tid(2), "rwlock locks.bss: lock_third"),
    ]) {
        assert!(
            line.starts_with(&format!("{name} {tid}, who waited ")),
            "{line}"
        );
        assert!(
            line.trim().ends_with(&format!(" of it for {lock}")),
            "{line}"
        );
    }
    assert_eq!(told[2], format!("keeper {}", tid(3)));
    // The tail is not told again.
    assert_eq!(told.len(), 3, "{}", output.stdout);
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
