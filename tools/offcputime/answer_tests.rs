//! First lines of made-up profiles.

use clap::Parser;
use profile::model::Sample;

use super::*;
use crate::made_up::{off_cpu, task, wait};

fn sample(comm: &str, tgid: u32, tid: u32, reason: &'static str, ms: u64) -> Sample {
    wait(task(comm, tgid, tid), reason, &[ms * 1_000_000])
}

/// The same, of which it could have run for some time.
fn queued(mut sample: Sample, ms: u64) -> Sample {
    let ns = ms * 1_000_000;
    sample.values = vec![sample.values[0] - ns, ns];
    sample
}

fn first_lines(samples: Vec<Sample>, oncpu_ms: u64) -> String {
    let profile = off_cpu(samples, 1);
    let accounting = Accounting {
        threads: 6,
        oncpu_ns: oncpu_ms * 1_000_000,
        ..Accounting::default()
    };
    answer(&Args::parse_from(["offcputime"]), &profile, &accounting).join("\n")
}

#[test]
fn threads_with_nothing_to_do_have_that_as_their_answer() {
    let mut idle = sample("server", 7, 7, "epoll", 9_900);
    idle.idle = true;
    let samples = vec![idle, sample("server", 7, 7, "preempted", 60)];
    let mut profile = off_cpu(samples, 10_000_000_000);
    let accounting = Accounting {
        threads: 1,
        lifetime_ns: 10_000_000_000,
        oncpu_ns: 30_000_000,
        ..Accounting::default()
    };
    let args = Args::parse_from(["offcputime"]);
    let answer_of = |profile: &Profile| answer(&args, profile, &accounting).join("\n");
    assert_eq!(
        answer_of(&profile),
        "1 thread had nothing to do for 99% of 10.0 thread-seconds"
    );
    profile.samples[1].values[0] *= 2;
    assert!(answer_of(&profile).starts_with("server 7 waited"));
}

#[test]
fn the_largest_wait_that_nobody_chose_is_said_with_whose_it_is() {
    // A process is called by its first thread, not by the one that waited.
    let samples = vec![
        sample("reader", 7, 9, "pipe", 3_000),
        sample("demo", 7, 7, "futex", 1_000),
    ];
    assert_eq!(
        first_lines(samples, 10),
        "demo 7 waited 3.00 thread-seconds on pipes, 75% of off-CPU time not idle"
    );
    // A shell's child is its program's.
    let samples = vec![
        sample("dd", 7, 7, "block-io", 900),
        sample("sh", 7, 7, "block-io", 100),
    ];
    assert_eq!(
        first_lines(samples, 10),
        "dd 7 waited 1.00 thread-seconds for block I/O, 100% of off-CPU time not idle"
    );
    // Sleep is more, but leads nowhere; what is idle is no part of a share.
    let mut idle = sample("demo", 7, 8, "epoll", 99_000);
    idle.idle = true;
    let samples = vec![
        sample("demo", 7, 7, SLEEP, 6_000),
        sample("fio", 8, 8, "block-io", 1_000),
        sample("fio", 9, 9, "block-io", 2_000),
        sample("dd", 10, 10, "block-io", 1_000),
        idle,
    ];
    assert_eq!(
        first_lines(samples, 10),
        "fio 9 and 2 other processes waited 4.00 thread-seconds for block I/O,\n  \
         40% of off-CPU time not idle; 60% was sleep by choice"
    );
}

#[test]
fn time_on_cpus_comes_first_where_it_is_more() {
    let samples = vec![sample("cc", 7, 7, "page-fault", 2_000)];
    assert_eq!(
        first_lines(samples, 5_000),
        "6 threads ran for 5.00 thread-seconds, more than they waited for others;\n  \
         cc 7 waited 2.00 thread-seconds in page faults, \
         100% of off-CPU time not idle"
    );
    assert_eq!(
        first_lines(Vec::new(), 5_000),
        "6 threads ran for 5.00 thread-seconds, more than they waited for others"
    );
}

#[test]
fn who_waits_for_nobody_is_said_to_sleep_or_to_be_idle() {
    let mut idle = sample("a", 1, 1, "poll", 500);
    idle.idle = true;
    let slept = sample("b", 2, 2, SLEEP, 100);
    assert_eq!(
        first_lines(vec![idle.clone(), slept], 0),
        "b 2 slept 100 ms of thread time by its own choice, 100% of off-CPU time not idle"
    );
    assert_eq!(
        first_lines(vec![idle], 0),
        "all waits were of threads with nothing to do"
    );
    assert_eq!(first_lines(Vec::new(), 0), "");
    // `offcputime -- sleep 1`: it ran a little, and waited for a CPU.
    let slept = |ms| {
        let waited = queued(sample("sleep", 2, 2, SLEEP, ms), 3);
        first_lines(vec![waited], 5)
    };
    let said = "sleep 2 slept 997 ms of thread time by its own choice,\n  \
                100% of off-CPU time not idle";
    assert_eq!(slept(1_000), said);
    assert!(slept(700).starts_with("6 threads ran for 5.00 ms"));
}

#[test]
fn time_in_the_run_queue_is_for_a_cpu_whatever_was_waited_for_before() {
    // Most of fio's time beside a load is not for its disk.
    let fio = queued(sample("fio", 8, 8, "block-io", 1_420), 1_190);
    let preempted = sample("stress", 9, 9, "preempted", 100);
    let said = "fio 8 and 1 other process waited 1.29 thread-seconds for a CPU,\n  \
                85% of off-CPU time not idle";
    assert_eq!(first_lines(vec![fio, preempted], 0), said);
    // An event loop that is ready to run has something to do.
    let mut idle = queued(sample("server", 7, 7, "epoll", 9_000), 300);
    idle.idle = true;
    let disk = sample("dd", 6, 6, "block-io", 100);
    assert_eq!(
        first_lines(vec![idle, disk.clone()], 0),
        "server 7 waited 300 ms of thread time for a CPU, 75% of off-CPU time not idle"
    );
    // A thread that lacks quota does so in the run queue.
    let throttled = queued(sample("app", 5, 5, "throttled", 200), 200);
    assert_eq!(
        first_lines(vec![throttled, disk], 0),
        "app 5 waited 200 ms of thread time for CPU quota, 67% of off-CPU time not idle"
    );
}

#[test]
fn every_reason_has_words_of_its_own() {
    let words = reasons::WORDS.map(|reason| match reason {
        "preempted" => for_what(reasons::CPU),
        reason => for_what(reason),
    });
    let different: std::collections::HashSet<&str> = words.into();
    assert_eq!(different.len(), reasons::WORDS.len());
}

#[test]
fn a_process_has_a_name_of_its_own_threads() {
    let mut samples = vec![sample("worker", 7, 8, "futex", 60)];
    for tgid in [20, 21, 22] {
        samples.push(sample("postgres", tgid, tgid, "futex", 40));
    }
    let said = first_lines(samples, 0);
    assert!(
        said.starts_with("worker 7 and 3 other processes\n  waited 180 ms "),
        "{said}"
    );
}
