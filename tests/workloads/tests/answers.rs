//! The workloads by themselves: what they measured against what was asked of them and what the kernel says.

#[path = "../../live/args.rs"]
mod args;
#[path = "../../live/workload.rs"]
mod workload;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use workload::{Workload, number};

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_waiter")).with_file_name(name)
}

/// One at a time: they measure.
fn alone() -> MutexGuard<'static, ()> {
    static CPUS: Mutex<()> = Mutex::new(());
    CPUS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(name: &str, args: &[&str]) -> Vec<Value> {
    let _alone = alone();
    let mut workload = Workload::start(name, args);
    let results = workload.work();
    workload.finish();
    assert!(!results.is_empty(), "{name} has something to say");
    results
}

/// Asserts that two times differ by less than `percent` of the second, or by the time of a few switches.
fn assert_close(what: &str, got_ns: u64, want_ns: u64, percent: u64) {
    let slack_ns = want_ns * percent / 100 + 200_000;
    assert!(
        got_ns.abs_diff(want_ns) <= slack_ns,
        "{what}: {got_ns} against {want_ns}"
    );
}

fn blocked_ns(result: &Value) -> u64 {
    let busy_ns = number(result, "oncpu_ns") + number(result, "run_delay_ns");
    number(result, "wall_ns").saturating_sub(busy_ns)
}

#[test]
#[ignore = "statistical: make truth"]
fn each_wait_is_real() {
    let dir = env!("CARGO_TARGET_TMPDIR");
    let results = run(
        "waiter",
        &["--waits", "11", "--disk-waits", "101", "--dir", dir],
    );
    assert_eq!(results.len(), 11);
    for result in &results {
        let waits = number(result, "waits");
        // A neighbour may delay a waiter until its lock is free or its page is there.
        assert!(number(result, "slept") * 20 >= waits * 19, "{result}");
        if waits == 11 {
            assert!(blocked_ns(result) > 10 * 20_000_000, "{result}");
        }
    }
}

#[test]
#[ignore = "statistical: make truth"]
fn spinners_share_a_cpu_and_never_block() {
    let results = run(
        "spinner",
        &["--threads", "4", "--cpu", "0", "--seconds", "0.5"],
    );
    assert_eq!(results.len(), 4);
    for result in &results {
        let busy_ns = number(result, "oncpu_ns") + number(result, "run_delay_ns");
        // Time that a hypervisor steals is in neither.
        assert_close("busy", busy_ns, number(result, "wall_ns"), 5);
        assert!(
            number(result, "run_delay_ns") > number(result, "oncpu_ns"),
            "{result}"
        );
    }
}

#[test]
fn consumers_are_woken_exactly_so_often() {
    for result in run("waker", &["--count", "211", "--cpu", "0", "--pairs", "2"]) {
        assert_eq!(number(&result, "wakeups"), 211);
        assert_eq!(number(&result, "total.nvcsw"), 211, "{result}");
        let preempted = number(&result, "total.nivcsw");
        assert_eq!(number(&result, "total.slices"), 211 + preempted, "{result}");
    }
}

#[test]
#[ignore = "statistical: make truth"]
fn a_storm_makes_threads_queue() {
    let args = [
        "--storm",
        "--threads",
        "8",
        "--cpu",
        "0",
        "--seconds",
        "0.5",
    ];
    for result in run("waker", &args)
        .iter()
        .filter(|result| result["kind"] == "waker")
    {
        assert!(number(result, "received") > 50, "{result}");
        assert!(number(result, "total.run_delay_ns") > 5_000_000, "{result}");
    }
}

#[test]
fn sleepers_sleep() {
    let results = run("asleep", &[]);
    assert_eq!(results.len(), 4);
    for result in &results {
        assert_eq!(number(result, "total.slices"), 0, "{result}");
        assert!(number(result, "wall_ns") > 0, "{result}");
    }
}

#[test]
#[ignore = "statistical: make truth"]
fn the_split_adds_up() {
    for result in run("splitter", &["--seconds", "1", "--idle-share", "20"]) {
        let spent = ["spin_a_ns", "spin_b_ns", "spin_c_ns"].map(|field| number(&result, field));
        let total: u64 = spent.iter().sum();
        assert_close("sum", total, number(&result, "oncpu_ns"), 3);
        for (spent, percent) in spent.into_iter().zip([50, 30, 20]) {
            assert_close("share", spent, total * percent / 100, 3);
        }
    }
}

#[test]
fn hostile_names_and_code_run() {
    let results = run(
        "hostile",
        &["--seconds", "0.2", "--jit-name", "a;b", "--jit-name", "c 7"],
    );
    assert_eq!(results.len(), 9);
    let made = results.last().expect("the made code comes last");
    assert_eq!(made["name_hex"], serde_json::json!(["613b62", "632037"]));
    assert!(results.iter().all(|result| number(result, "oncpu_ns") > 0));
}

#[test]
#[ignore = "statistical: make truth"]
fn short_lives_burn_what_they_should() {
    let dir = env!("CARGO_TARGET_TMPDIR");
    for args in [&[][..], &["--deleted-in", dir]] {
        let results = run(
            "shortlived",
            &[&["--count", "3", "--millis", "10"], args].concat(),
        );
        assert_eq!(results.len(), 3);
        for result in &results {
            assert_close("burnt", number(result, "burn_ns"), 10_000_000, 20);
        }
    }
}
