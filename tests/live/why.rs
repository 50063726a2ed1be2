//! why against a program that knows where its time went.

use std::process::Command;

use crate::budget::SLEEPERS;
use crate::disk::LoopDisk;
use crate::kernel::run_delay_ns;
use crate::prelude::*;
use crate::real_program::redis;

/// Lines of a kind.
pub(crate) fn lines<'a>(report: &'a Value, kind: &str) -> Vec<&'a Value> {
    let lines = list(report, "lines").iter();
    lines.filter(|line| line["kind"] == kind).collect()
}

/// Time of all lines of a kind.
pub(crate) fn kind_ns(report: &Value, kind: &str) -> u64 {
    sum(lines(report, kind), "ns")
}

/// The line of a kind that a function waits in.
pub(crate) fn line<'a>(report: &'a Value, kind: &str, place: &str) -> &'a Value {
    let mut lines = lines(report, kind);
    lines.retain(|line| line["place"].as_str().is_some_and(|it| it.ends_with(place)));
    assert_eq!(lines.len(), 1, "lines of {kind} in {place}: {report:#}");
    lines[0]
}

/// The culprit that has most of a line, and its share of the waits whose end was seen: a kernel that shields some tasks may hide it.
pub(crate) fn first_culprit(line: &Value) -> (&Value, f64) {
    let culprits = list(line, "culprits");
    let share = |one: &Value| one["share"].as_f64().expect("a share");
    let unseen = culprits.iter().find(|one| one["unseen"] == true);
    let seen = 1.0 - unseen.map_or(0.0, share);
    (&culprits[0], share(&culprits[0]) / seen)
}

/// Looks at everything, until it is told to end.
pub(crate) const ALL: &str = "--max-overhead 100 100";

/// Lines come to all time, and next to nothing is not explained.
pub(crate) fn assert_explained(report: &Value) {
    let lifetime_ns = number(report, "lifetime_ns");
    let signed = |line: &Value| line["ns"].as_i64().expect("a time");
    // Stacks are added up apart from lines.
    let stacks: u64 = list(report, "stacks").iter().map(weight).sum();
    let rest = ["unseen", "lost", "residual"].map(|kind| lines(report, kind));
    let rest: i64 = rest.iter().flatten().map(|line| signed(line)).sum();
    let explained = stacks.cast_signed() + rest;
    assert_eq!(explained, lifetime_ns.cast_signed(), "{report:#}");
    let few = lifetime_ns.cast_signed() / 200;
    assert_within("not explained, ns", rest, -few..=few, report);
}

/// The same of so many threads that were there throughout.
fn assert_comes_to_all(report: &Value, threads: u64) {
    let lifetime_ns = number(report, "lifetime_ns");
    let window_ns = number(report, "end_ns") - number(report, "start_ns");
    assert_eq!(number(report, "threads"), threads, "{report:#}");
    let all = threads * window_ns;
    assert_within("lifetime, ns", lifetime_ns, all - all / 1000..=all, report);
    assert_explained(report);
}

#[test]
fn lines_come_to_all_time_and_have_each_wait_once() {
    let _machine = Machine::alone();
    let (report, results) = traced("why", ALL, Workload::start("mixture", "--rounds 5"));
    assert_comes_to_all(&report, 4);
    for (kind, place) in [("futex", "take_the_lock"), ("pipe", "await_an_answer")] {
        let line = line(&report, kind, place);
        assert_eq!(
            number(line, "waits"),
            number(&results[0], "rounds"),
            "{line:#}"
        );
    }
}

#[test]
fn four_causes_at_once_have_their_time_and_their_culprits() {
    let _machine = Machine::alone();
    let (report, results) = traced("why", ALL, Workload::start("mixture", "--rounds 15"));
    let told = |field| number(&results[0], field);
    let lifetime_ns = number(&report, "lifetime_ns");

    assert_comes_to_all(&report, 4);

    // A wait by the program's clock holds some time ready, and some on a CPU, which lines of their own have.
    let on_cpu_ns = kind_ns(&report, "on-cpu");
    let beside: u64 = ["run-queue", "unseen", "lost"]
        .map(|kind| kind_ns(&report, kind))
        .iter()
        .sum();
    let beside = beside + on_cpu_ns.saturating_sub(told("compute_ns"));
    for (kind, place, field) in [
        ("futex", "take_the_lock", "lock_ns"),
        ("pipe", "await_an_answer", "answer_ns"),
    ] {
        let line = line(&report, kind, place);
        let bounds = told(field).saturating_sub(beside)..=told(field);
        assert_within(format!("{place}, ns"), number(line, "ns"), bounds, &report);
        assert_eq!(line["busy"], true);
    }
    let chain = &line(&report, "pipe", "await_an_answer")["chain"];
    let links = list(chain, "links");
    assert_eq!((links.len(), text(chain, "end")), (1, "root"), "{chain:#}");
    assert_eq!(text(&links[0], "kind"), "sleep", "{chain:#}");

    // Its partners sleep, too: one with the lock, one before it answers.
    let naps_ns = told("nap_ns") + told("lock_ns") + told("answer_ns");
    let bounds = naps_ns.saturating_sub(beside)..=naps_ns + beside;
    assert_within("sleep, ns", kind_ns(&report, "sleep"), bounds, &report);
    assert_eq!(lines(&report, "sleep")[0]["busy"], false);

    // Its engines share the tables that they walk by.
    let ends = list(&report, "stacks")
        .iter()
        .filter_map(|stack| stack["user_end"].as_str());
    assert!(
        ends.clone().count() > 10 && ends.clone().all(|end| end == "root"),
        "{report:#}"
    );

    let two_points = lifetime_ns / 50;
    let bounds = told("compute_ns") - two_points..=told("compute_ns") + two_points;
    assert_within("on CPU, ns", on_cpu_ns, bounds, &report);
    for (line, function, least) in [
        (lines(&report, "on-cpu")[0], "compute", 0.9),
        (
            line(&report, "futex", "take_the_lock"),
            "sleep_with_the_lock",
            0.99,
        ),
        (
            line(&report, "pipe", "await_an_answer"),
            "answer_late",
            0.99,
        ),
    ] {
        let (found, share) = first_culprit(line);
        let found = text(found, "function");
        assert!(found.ends_with(function), "{found}: {line:#}");
        assert_within(format!("{function}, share"), share, least..=1.0, line);
    }
}

/// Two programs read past all caches from one disk, each by itself.
#[test]
fn a_wait_for_a_disk_names_it_and_who_else_used_it() {
    let _machine = Machine::alone();
    let disk = LoopDisk::on_disk(64);
    let start = |rounds: u32| {
        let options = format!("--rounds {rounds} --disk {}", disk.path);
        Workload::start("mixture", options)
    };
    let (mut victim, mut other) = (start(9), start(6));
    let args = format!("-j {ALL} -p {}", victim.pid());
    let pids = [victim.pid(), other.pid()];
    let before_ns = pids.map(run_delay_ns);
    let (output, told) = during("why", args, || {
        victim.go();
        other.go();
        [&mut victim, &mut other].map(|one| number(&one.results()[0], "disk_ns"))
    });
    let after_ns = pids.map(run_delay_ns);
    let report = output.report();
    assert_comes_to_all(&report, 4);
    let line = line(&report, "block-io", "read_from_disk");
    let beside: u64 = ["run-queue", "unseen", "lost", "on-cpu"]
        .map(|kind| kind_ns(&report, kind))
        .iter()
        .sum();
    let bounds = told[0].saturating_sub(beside)..=told[0];
    assert_within("block-io, ns", number(line, "ns"), bounds, &report);

    let culprits = list(line, "culprits");
    // A kernel that shields some tasks may hide the end of a wait, which is said.
    let is_its = |one: &&Value| one["disk"] == *disk.name || one["unseen"] == true;
    let of_disk = culprits.iter().filter(is_its);
    let shares = of_disk.map(|one| one["share"].as_f64().expect("a share"));
    assert_within("share of the disk", shares.sum::<f64>(), 0.99..=1.001, line);
    assert_eq!(culprits[0]["disk"], *disk.name, "{line:#}");
    // A read ends later than its requests, which go one after the other or at once: 1 MiB are several.
    let users = list(&line["disk_users"], "users");
    let used = pids.map(u64::from).map(|pid| {
        let mut all = users.iter().filter(|user| number(user, "pid") == pid);
        number(all.next().expect("a user"), "device_ns") as f64
    });
    // A read's time is all the disk's where its thread has a CPU at once.
    let most = told.map(|ns| ns as f64);
    let least = [0, 1].map(|at| (most[at] - (after_ns[at] - before_ns[at]) as f64).max(0.0));
    let share = used[0] / (used[0] + used[1]);
    let (low, high) = (
        least[0] / (least[0] + most[1]),
        most[0] / (most[0] + least[1]),
    );
    assert_within(
        "share of the disk's time",
        share,
        low - 0.1..=high + 0.1,
        line,
    );
    victim.finish();
    other.finish();
}

#[test]
fn the_first_line_is_the_largest_cause_and_the_second_its_culprit() {
    let _machine = Machine::alone();
    // Its causes are its own: it has a CPU when it wants one.
    let mut command = Command::new("chrt");
    command
        .args(["--fifo", "1"])
        .arg(Workload::program("mixture"));
    command.args(["--rounds", "8"]);
    let mut workload = Workload::spawn("mixture", command);
    // Its first thread waits for the others, for their work or for an answer: that is another story.
    let (output, results) = during("why", format!("{ALL} --comm victim"), || {
        workload.go();
        workload.results()
    });
    workload.finish();
    let text = output
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let told = |field| number(&results[0], field);
    assert!(told("lock_ns") > told("answer_ns"), "{results:?}");
    let at = |words: &str| {
        text.find(words)
            .unwrap_or_else(|| panic!("no {words}: {text}"))
    };
    let first = at("was spent waiting for Rust lock ");
    let second = at("sleep_with_the_lock");
    assert!(
        at("take_the_lock") > first && second > at("take_the_lock"),
        "{text}"
    );
    let next = at("next: ");
    assert!(next > second && next < at("WHERE THE TIME WENT"), "{text}");
    assert!(
        text[next..].contains("lockstat -s 3 --comm victim "),
        "{text}"
    );
}

#[test]
fn accounts_of_many_threads_of_many_processes_and_of_a_server_come_to_all() {
    let _machine = Machine::alone();
    let crowd = Program::c("sleepers", SLEEPERS, "-pthread").started("");
    let (report, _) = traced("why", ALL, crowd);
    assert_comes_to_all(&report, 4001);
    // Nobody ran: each stack is there.
    assert_eq!(kind_ns(&report, "lost"), 0, "{report:#}");

    let children = "for i in $(seq 100); do /bin/true; done";
    let command = ["-j", "--max-overhead", "100", "--", "sh", "-c", children];
    let report = Tool::run("why", &command[..]).last_report();
    assert_eq!(
        number(&report, "threads"),
        102,
        "the shell, seq, and 100 children"
    );
    assert_explained(&report);

    let dir = tempfile::tempdir().expect("a directory");
    let server = redis(dir.path());
    let report = Tool::run("why", format!("-j --max-overhead 100 -p {} 1", server.pid)).report();
    assert_explained(&report);
    assert!(kind_ns(&report, "on-cpu") > number(&report, "busy_ns") / 10);
}
