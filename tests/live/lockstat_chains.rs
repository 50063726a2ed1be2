//! lockstat's wait chains and releasers against programs that know theirs.

use std::process::Command;

use serde_json::Value;

use crate::c_program;
use crate::kernel::alone;
use crate::lockstat_played::{Played, assert_time, assert_time_in};
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

const STAGE: &str = include_str!("../workloads/locks/stage.h");
const CHAIN: &str = include_str!("../workloads/locks/chain.c");
const PTHREAD: &str = include_str!("../workloads/locks/pthread.c");

/// Runs a program under lockstat: what it says of itself, and what lockstat says.
fn run(source: &str, args: &[&str]) -> (Vec<Value>, Output) {
    let dir = tempfile::tempdir().expect("a directory");
    let source = format!("{STAGE}{source}");
    let program = c_program::compile(dir.path(), "locks", &source, &["-pthread"]);
    let (mut program, pid) = Workload::spawn("locks", Command::new(program));
    let pid = pid.to_string();
    let tool = Tool::start("lockstat", &[&["-U", "-p", &pid], args].concat());
    tool.wait_attached();
    program.go();
    let said = program.results();
    tool.interrupt();
    let output = tool.finish();
    program.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    (said, output)
}

#[test]
fn a_chain_of_three_locks_has_its_threads_in_order_and_their_times() {
    let Some(_machine) = alone() else {
        return;
    };
    let (threads, output) = run(CHAIN, &["-j", "--strict"]);
    let report = output.report();
    let chains = report["chains"].as_array().expect("a list");
    let (tid, rounds) = (number(&threads[0], "tid"), number(&threads[0], "rounds"));
    let begins = |chain: &&Value| chain["links"][0]["waiter"]["tid"] == tid;
    let found: Vec<&Value> = chains.iter().filter(begins).collect();
    let [chain] = found[..] else {
        panic!("one chain from the front: {chains:#?}");
    };
    assert_eq!(number(chain, "waits"), rounds, "{chain:#}");
    let links = chain["links"].as_array().expect("a list");
    assert_eq!(links.len(), 3, "{chain:#}");
    for (at, link) in links.iter().enumerate() {
        let (thread, next) = (&threads[at], &threads[at + 1]);
        let lock = ["lock_first", "lock_second", "lock_third"][at];
        let name = link["lock"].as_str().expect("text");
        assert!(name.ends_with(&format!(": {lock}")), "{name}");
        assert_eq!(link["waiter"]["comm"], thread["name"], "{chain:#}");
        assert_eq!(link["waiter"]["tid"], thread["tid"], "{chain:#}");
        assert_eq!(link["holder"]["tid"], next["tid"], "{chain:#}");
        let (ns, own_ns) = (number(link, "ns"), number(thread, "ns"));
        assert_time(lock, ns, own_ns);
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
    let (threads, output) = run(CHAIN, &[]);
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

/// Value of the folded lines that have all of `parts`, in this order, µs.
fn folded_us(text: &str, parts: &[&str]) -> u64 {
    let values = text.lines().filter_map(|line| {
        let (stack, value) = line.rsplit_once(' ')?;
        let mut rest = stack;
        for part in parts {
            rest = &rest[rest.find(part)? + part.len()..];
        }
        value.parse::<u64>().ok()
    });
    values.sum()
}

#[test]
fn whoever_releases_a_lock_stands_on_its_head_behind_the_waiter() {
    let Some(_machine) = alone() else {
        return;
    };
    let (said, output) = run(PTHREAD, &["--folded", "--waker"]);
    let played: Vec<Played> = said.iter().map(Played::of).collect();
    for (names, waiter) in [
        (
            &["lock_written", "lock_readers", "lock_between"][..],
            "take_write;",
        ),
        (&["lock_read"], "take_read;"),
    ] {
        let ours = played.iter().filter(|one| names.contains(&&*one.name));
        let (least_ns, most_ns) = ours
            .map(Played::asleep_ns)
            .fold((0, 0), |(least, most), one| {
                (least + one.start(), most + one.end())
            });
        let parts = [
            "locks;",
            waiter,
            ";--;",
            "release_rwlock;",
            "main;",
            ";locks",
        ];
        let us = folded_us(&output.stdout, &parts);
        assert_time_in(waiter, 1_000 * us, least_ns..=most_ns);
    }
    // Who gave up was not woken by anybody.
    let alone_us = folded_us(&output.stdout, &["take_in_vain;"]);
    assert!(alone_us > 0, "{}", output.stdout);
    assert_eq!(folded_us(&output.stdout, &["take_in_vain;", ";--;"]), 0);
}
