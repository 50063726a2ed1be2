//! lockstat's kernel locks against programs that hold a lock, and the log of the kernel's events.

use std::thread;

use oracle::{Bracket, Engine, Logs, kernel_lock, run_queue};
use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::{alone, skip};
use crate::lockstat_played::{address, waited};
use crate::tool::{Output, Tool};
use crate::traced::logged;
use crate::workload::{Workload, number};

/// A thread takes a lock and comes to a page that userfaultfd keeps from it: it sleeps with the lock held for as long as
/// another thread likes. `f`: the inode's lock, by writing to a file; `p`: the mutex of a file's position, by reading; `w`: a
/// pipe's, by writing.
const HOLD: &str = include_str!("../workloads/locks/hold.c");

pub(crate) fn report(output: &Output) -> Value {
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("one line of JSON")
}

pub(crate) fn locks(report: &Value) -> &[Value] {
    report["locks"].as_array().expect("a list")
}

/// What lockstat says of a lock that was held, what the program says, and what the kernel did.
struct Held {
    lock: Value,
    said: Value,
    report: Value,
    logs: Logs,
}

/// Runs `rounds` waits for a lock that is held for 50 ms each.
fn hold(mode: &str, rounds: u64, args: &[&str]) -> Held {
    // In memory: who has the lock of a file on a disk may wait for its journal.
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let program = compile(dir.path(), "hold", HOLD, &["-pthread"]);
    let mut command = std::process::Command::new(program);
    command
        .arg(mode)
        .arg(dir.path().join("held"))
        .arg(rounds.to_string());
    let (mut workload, pid) = Workload::spawn("hold", command);
    let pid = pid.to_string();
    let start = || Tool::start("lockstat", &[&["-K", "-j", "-p", &*pid], args].concat());
    let engines = &[Engine::Scheduler, Engine::Wakings, Engine::Locks];
    let (output, mut said, logs) = logged(engines, start, &mut workload);
    workload.finish();
    let report = report(&output);
    let said = said.remove(0);
    let waiter = number(&said, "waiter");
    let is_ours =
        |lock: &&Value| waited([*lock], waiter).0 > 0 && number(lock, "total_ns") > 10_000_000;
    let found = locks(&report).iter().find(is_ours);
    let lock = found
        .unwrap_or_else(|| panic!("no such lock: {report}"))
        .clone();
    eprintln!("{mode}: {said}\n{lock}");
    Held {
        lock,
        said,
        report,
        logs,
    }
}

impl Held {
    fn waiter(&self) -> u32 {
        u32::try_from(number(&self.said, "waiter")).expect("a thread ID")
    }

    /// The waiter waited for the lock so often, for a time inside the log's bracket.
    fn assert_waited(&self, rounds: u64) {
        let tid = self.waiter();
        let waits = kernel_lock::waits(&self.logs, tid);
        let waits = &waits.by_lock[&address(&self.lock)];
        let truth: Bracket = waits.iter().copied().collect();
        let (count, ns) = waited([&self.lock], tid.into());
        eprintln!("{count} waits, {ns} ns; {truth:?}");
        assert!(
            truth.holds(count, ns),
            "{count}, {ns} ns; {truth:?}: {}",
            self.lock
        );
        assert_eq!(count, rounds);
        assert_eq!(number(&self.lock, "contentions"), rounds);
    }

    /// What of its waits for the lock the waiter was queued for a CPU.
    fn queued(&self) -> Bracket {
        let tid = self.waiter();
        let waits = kernel_lock::waits(&self.logs, tid);
        let queued = run_queue::waits_since_waking(&self.logs, tid).expect("logs that agree");
        let waits = waits.by_lock[&address(&self.lock)].iter();
        let common = waits.flat_map(|wait| queued.iter().filter_map(|span| span.pair.common(wait)));
        common.collect()
    }
}

/// The holder sleeps in its page fault whenever the waiter comes.
fn is_held_by(lock: &Value, holder: u64, waits: u64) {
    let holders = lock["holders"].as_array().expect("a list");
    let ours = holders.iter().filter(|one| number(one, "tid") == holder);
    let (mut asleep, mut on_fault) = (0, 0);
    for one in ours {
        assert_eq!(one["known_as"], "owner", "{one}");
        asleep += number(one, "blocked");
        let frames = one["kernel"].as_array().expect("a list");
        if frames.iter().any(|frame| frame == "handle_userfault") {
            on_fault += number(one, "waits");
        }
    }
    assert_eq!((asleep, on_fault), (waits, waits), "{lock}");
}

#[test]
fn an_inodes_holder_and_the_time_that_it_costs() {
    let Some(_machine) = alone() else {
        return;
    };
    let held = hold("f", 5, &[]);
    let name = held.lock["name"].as_str().expect("text");
    assert!(name.starts_with("i_rwsem of file held on "), "{name}");
    held.assert_waited(5);
    is_held_by(&held.lock, number(&held.said, "holder"), 5);
}

/// A mutex held by a sleeper, five times 50 ms.
fn is_slept_for(held: &Held) {
    let lock = &held.lock;
    assert_eq!(lock["class"], "mutex");
    held.assert_waited(5);
    is_held_by(lock, number(&held.said, "holder"), 5);
    // Each wait tries to spin first. Who sleeps is not spun for; it is one wait all the same.
    assert_eq!(number(&held.report, "losses.unended"), 0, "{}", held.report);
    assert!(number(lock, "spin_ns") > 0, "{lock}");
    let (spin_ns, block_ns) = (number(lock, "spin_ns"), number(lock, "block_ns"));
    assert_eq!(spin_ns + block_ns, number(lock, "total_ns"));
    assert!(block_ns >= 5 * 50_000_000, "{lock}");
}

#[test]
fn a_mutexes_holder_and_the_time_blocked_apart_from_spinning() {
    let Some(_machine) = alone() else {
        return;
    };
    let held = hold("p", 5, &[]);
    assert_eq!(held.lock["name"], "f_pos_lock");
    is_slept_for(&held);
}

#[test]
fn a_waiter_that_is_queued_for_a_cpu_is_told_from_one_that_waits_for_the_lock() {
    let Some(_machine) = alone() else {
        return;
    };
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return skip("needs a CPU beside that of the waiter");
    }
    let held = hold("ph", 5, &[]);
    held.assert_waited(5);
    let (truth, queued_ns) = (held.queued(), number(&held.lock, "runqueue_ns"));
    eprintln!("{queued_ns} ns queued; {truth:?}");
    assert!(
        (truth.least_ns..=truth.most_ns).contains(&queued_ns),
        "{queued_ns}; {truth:?}: {}",
        held.lock
    );
    // Whatever becomes of the CPUs, somebody has the waiter's when it is woken.
    assert!(truth.least_ns > 0 && queued_ns < number(&held.lock, "block_ns"));
}

#[test]
fn whoever_gives_a_mutex_back_is_known_with_the_stack() {
    let Some(_machine) = alone() else {
        return;
    };
    let Held { said, report, .. } = hold("p", 5, &["--waker"]);
    let stacks = report["stacks"].as_array().expect("a list");
    let waits = |stack: &&Value| {
        number(stack, "tid") == number(&said, "waiter")
            && stack["values"][0]
                .as_u64()
                .is_some_and(|ns| ns > 10_000_000)
    };
    let ours: Vec<&Value> = stacks.iter().filter(waits).collect();
    assert!(!ours.is_empty(), "{report}");
    for stack in ours {
        let waker = &stack["waker"];
        assert_eq!(waker["tid"], said["holder"], "{stack}");
        let has = |part: &str, name: &str| {
            let frames = waker[part].as_array().expect("a list");
            frames.iter().any(|frame| frame["name"] == name)
        };
        assert!(has("user", "hold"), "{stack}");
        assert!(
            has("kernel", "__x64_sys_read") || has("kernel", "ksys_read"),
            "{stack}"
        );
    }
}

#[test]
fn a_pipe_is_known_by_the_number_that_proc_has() {
    let Some(_machine) = alone() else {
        return;
    };
    let held = hold("w", 5, &[]);
    let inode = number(&held.said, "inode");
    assert_eq!(held.lock["name"], format!("pipe:[{inode}]"));
    is_slept_for(&held);
}

#[test]
fn a_wait_that_does_not_end_is_counted_and_marked() {
    let Some(_machine) = alone() else {
        return;
    };
    for args in [&[][..], &["-i", "3600"]] {
        let Held {
            lock, said, report, ..
        } = hold("p", 0, args);
        assert_eq!(
            (number(&lock, "contentions"), number(&lock, "open")),
            (1, 1)
        );
        is_held_by(&lock, number(&said, "holder"), 1);
        // The program reported after 50 ms of it.
        let ns = number(&lock, "total_ns");
        assert!(
            (50_000_000..number(&report, "duration_ns")).contains(&ns),
            "{lock}"
        );
        let stacks = report["stacks"].as_array().expect("a list");
        let waits = |stack: &&Value| number(stack, "tid") == number(&said, "waiter");
        let stack = stacks.iter().find(waits).expect("the waiter's stack");
        let user = stack["user"].as_array().expect("a list");
        let is_ours = |frame: &Value| frame["name"] == "wait_for_it";
        assert!(user.iter().any(is_ours), "{stack}");
    }
}
