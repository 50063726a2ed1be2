//! lockstat's wait chains and releasers against programs that know theirs, and the log of the kernel's events.

use std::process::Command;

use oracle::futex::{Wait, waits};
use oracle::{Bracket, Engine, Logs};
use serde_json::Value;

use crate::c_program;
use crate::kernel::alone;
use crate::lockstat_played::{Played, address, named};
use crate::tool::{Output, Tool};
use crate::traced::logged;
use crate::workload::{Workload, number};

const STAGE: &str = include_str!("../workloads/locks/stage.h");
const CHAIN: &str = include_str!("../workloads/locks/chain.c");
const PTHREAD: &str = include_str!("../workloads/locks/pthread.c");

/// Runs a program under lockstat: what it says of itself, what lockstat says, and what the kernel did.
fn run(source: &str, args: &[&str]) -> (Vec<Value>, Output, Logs) {
    let dir = tempfile::tempdir().expect("a directory");
    let source = format!("{STAGE}{source}");
    let program = c_program::compile(dir.path(), "locks", &source, &["-pthread"]);
    let (mut program, pid) = Workload::spawn("locks", Command::new(program));
    let pid = pid.to_string();
    let start = || Tool::start("lockstat", &[&["-U", "-p", &*pid], args].concat());
    let (output, said, logs) = logged(&[Engine::Scheduler, Engine::Calls], start, &mut program);
    program.finish();
    (said, output, logs)
}

/// All waits of a thread in the log.
fn waits_of(logs: &Logs, tid: u64) -> Vec<Wait> {
    let tid = u32::try_from(tid).expect("a thread ID");
    waits(logs, tid, u64::MAX).expect("logs that agree")
}

/// `sizeof(pthread_rwlock_t)`
const RWLOCK_BYTES: u64 = 56;

/// Its waits for the lock that is a variable of this name, one a round.
fn waits_for(report: &Value, logs: &Logs, thread: &Value, variable: &str) -> Vec<Wait> {
    let at = address(named(report["locks"].as_array().expect("a list"), variable));
    let mut waits = waits_of(logs, number(thread, "tid"));
    // A rwlock's waiters sleep on a word inside it.
    waits.retain(|wait| (at..at + RWLOCK_BYTES).contains(&wait.address));
    waits
}

#[test]
fn a_chain_of_three_locks_has_its_threads_in_order_and_their_times() {
    let Some(_machine) = alone() else {
        return;
    };
    let (threads, output, logs) = run(CHAIN, &["-j", "--strict"]);
    let report = output.report();
    let chains = report["chains"].as_array().expect("a list");
    let tid = number(&threads[0], "tid");
    let begins = |chain: &&Value| chain["links"][0]["waiter"]["tid"] == tid;
    let found: Vec<&Value> = chains.iter().filter(begins).collect();
    let [chain] = found[..] else {
        panic!("one chain from the front: {chains:#?}");
    };
    let links = chain["links"].as_array().expect("a list");
    assert_eq!(links.len(), 3, "{chain:#}");
    let names = ["lock_first", "lock_second", "lock_third"];
    let mut before: Option<Vec<Wait>> = None;
    for (at, link) in links.iter().enumerate() {
        let (thread, next) = (&threads[at], &threads[at + 1]);
        let lock = names[at];
        let name = link["lock"].as_str().expect("text");
        assert!(name.ends_with(&format!(": {lock}")), "{name}");
        assert_eq!(link["waiter"]["comm"], thread["name"], "{chain:#}");
        assert_eq!(link["waiter"]["tid"], thread["tid"], "{chain:#}");
        assert_eq!(link["holder"]["tid"], next["tid"], "{chain:#}");
        let own = waits_for(&report, &logs, thread, lock);
        // Only while the one in front waited, too.
        let meanwhile = before.as_ref().unwrap_or(&own).iter().zip(&own);
        let truth: Bracket = meanwhile
            .filter_map(|(front, own)| front.pair.common(&own.pair))
            .collect();
        let (waits, ns) = (number(chain, "waits"), number(link, "ns"));
        eprintln!("{lock}: {waits} waits, {ns} ns; {truth:?}");
        assert!(truth.holds(waits, ns), "{lock}: {ns}; {truth:?}: {chain:#}");
        before = Some(own);
    }
    // Whoever waits for the keeper begins no chain: it waits for no lock.
    let back = number(&threads[2], "tid");
    assert!(
        chains
            .iter()
            .all(|one| one["links"][0]["waiter"]["tid"] != back),
        "{chains:#?}"
    );
}

#[test]
fn a_chain_is_told_in_words() {
    let Some(_machine) = alone() else {
        return;
    };
    let (threads, output, _) = run(CHAIN, &[]);
    let tid = |at: usize| number(&threads[at], "tid");
    let lines: Vec<&str> = output.stdout.lines().map(str::trim).collect();
    let at = lines
        .iter()
        .position(|line| line.ends_with("WHO WAITED FOR WHOM"))
        .unwrap_or_else(|| panic!("{}", output.stdout));
    assert!(
        lines[at + 1].ends_with(&format!("front {} for mutex locks.bss: lock_first", tid(0))),
        "{}",
        output.stdout
    );
    for (line, (name, tid, lock)) in lines[at + 2..].iter().zip([
        ("middle", tid(1), "mutex locks.bss: lock_second"),
        ("back", tid(2), "rwlock locks.bss: lock_third"),
    ]) {
        assert!(
            line.starts_with(&format!("held by {name} {tid}, who waited ")),
            "{line}"
        );
        assert!(line.ends_with(&format!(" of it for {lock}")), "{line}");
    }
    assert_eq!(lines[at + 4], format!("held by keeper {}", tid(3)));
    // The tail is not told again.
    assert_eq!(lines[at + 5], "", "{}", output.stdout);
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
    let Some(_machine) = alone() else {
        return;
    };
    let (said, output, logs) = run(PTHREAD, &["--folded", "--waker"]);
    for (names, waiter) in [
        (
            &["lock_written", "lock_readers", "lock_between"][..],
            "take_write;",
        ),
        (&["lock_read"], "take_read;"),
    ] {
        let of_names = |thread: &&Value| names.contains(&&*Played::of(thread).name);
        let waits = said
            .iter()
            .filter(of_names)
            .flat_map(|thread| waits_of(&logs, Played::of(thread).waiter));
        let truth: Bracket = waits.map(|wait| wait.pair).collect();
        let parts = [
            "locks;",
            waiter,
            ";--;",
            "release_rwlock;",
            "main;",
            ";locks",
        ];
        let (us, lines) = folded_us(&output.stdout, &parts);
        eprintln!("{waiter} {us} us in {lines} lines; {truth:?}");
        // Each is rounded.
        assert!(
            us + lines >= truth.least_ns / 1000 && us <= truth.most_ns / 1000 + lines,
            "{waiter} {us} us in {lines} lines; {truth:?}"
        );
    }
    // Who gave up was not woken by anybody.
    let (alone_us, _) = folded_us(&output.stdout, &["take_in_vain;"]);
    assert!(alone_us > 0, "{}", output.stdout);
    assert_eq!(folded_us(&output.stdout, &["take_in_vain;", ";--;"]).0, 0);
}
