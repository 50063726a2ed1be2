//! lockstat's kernel locks against programs that hold a lock, and the log of the kernel's events.

use std::thread;

use oracle::{Bracket, Engine, Logs, kernel_lock, run_queue};

use crate::kernel::skip;
use crate::lockstat_played::waited;
use crate::prelude::*;
use crate::traced::logged;

/// A thread takes a lock and comes to a page that userfaultfd keeps from it: it sleeps with the lock held for as long as
/// another thread likes. `f`: the inode's lock, by writing to a file; `p`: the mutex of a file's position, by reading; `w`: a
/// pipe's, by writing.
const HOLD: &str = include_str!("../workloads/locks/hold.c");

pub(crate) fn locks(report: &Value) -> &[Value] {
    list(report, "locks")
}

/// What lockstat says of a lock that was held, what the program says, and what the kernel did.
struct Held {
    lock: Value,
    said: Value,
    report: Value,
    logs: Logs,
}

/// Runs `rounds` waits for a lock that is held for 50 ms each.
fn hold(mode: &str, rounds: u64, options: &str) -> Held {
    // In memory: who has the lock of a file on a disk may wait for its journal.
    let dir = tempfile::tempdir_in("/dev/shm");
    let program = Program::c_in(dir, "hold", HOLD, "-pthread");
    let file = program.dir().join("held");
    let mut workload = program.start(format!("{mode} {} {rounds}", file.display()));
    let args = format!("-K -j -p {} {options}", workload.pid());
    let start = || Tool::start("lockstat", args);
    let engines = &[Engine::Scheduler, Engine::Wakings, Engine::Locks];
    let (output, mut said, logs) = logged(engines, start, &mut workload);
    workload.finish();
    let (report, said) = (output.report(), said.remove(0));
    let waiter = number(&said, "waiter");
    let is_ours =
        |lock: &&Value| waited([*lock], waiter).0 > 0 && number(lock, "total_ns") > 10_000_000;
    let lock = locks(&report).iter().find(is_ours).cloned();
    let lock = lock.unwrap_or_else(|| panic!("no such lock: {report}"));
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
        id(&self.said, "waiter")
    }

    /// The waiter waited for the lock so often, for a time inside the log's bracket.
    fn assert_waited(&self, rounds: u64) {
        let tid = self.waiter();
        let waits = kernel_lock::waits(&self.logs, tid);
        let waits = &waits.by_lock[&address(&self.lock)];
        let truth: Bracket = waits.iter().copied().collect();
        let found = waited([&self.lock], tid.into());
        assert_bracketed("waits", found, &truth, &self.lock);
        assert_eq!(found.0, rounds);
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
    let holders = list(lock, "holders").iter();
    let ours: Vec<&Value> = holders.filter(|one| number(one, "tid") == holder).collect();
    assert!(ours.iter().all(|one| one["known_as"] == "owner"), "{lock}");
    let asleep = sum(ours.iter().copied(), "blocked");
    let is_on_fault = |one: &&&Value| {
        list(one, "kernel")
            .iter()
            .any(|frame| frame == "handle_userfault")
    };
    let on_fault = sum(ours.iter().filter(is_on_fault).copied(), "waits");
    assert_eq!((asleep, on_fault), (waits, waits), "{lock}");
}

#[test]
fn an_inodes_holder_and_the_time_that_it_costs() {
    let _machine = Machine::alone();
    let held = hold("f", 5, "");
    let name = text(&held.lock, "name");
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
    let _machine = Machine::alone();
    let held = hold("p", 5, "");
    assert_eq!(held.lock["name"], "f_pos_lock");
    is_slept_for(&held);
}

#[test]
fn a_waiter_that_is_queued_for_a_cpu_is_told_from_one_that_waits_for_the_lock() {
    let _machine = Machine::alone();
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return skip("needs a CPU beside that of the waiter");
    }
    let held = hold("ph", 5, "");
    held.assert_waited(5);
    let (truth, queued_ns) = (held.queued(), number(&held.lock, "runqueue_ns"));
    let bounds = truth.least_ns..=truth.most_ns;
    assert_within("ns queued", queued_ns, bounds, &held.lock);
    // Whatever becomes of the CPUs, somebody has the waiter's when it is woken.
    assert!(truth.least_ns > 0 && queued_ns < number(&held.lock, "block_ns"));
}

#[test]
fn whoever_gives_a_mutex_back_is_known_with_the_stack() {
    let _machine = Machine::alone();
    let Held { said, report, .. } = hold("p", 5, "--waker");
    let waits =
        |stack: &&Value| stack["tid"] == said["waiter"] && number(stack, "values.0") > 10_000_000;
    let ours: Vec<&Value> = list(&report, "stacks").iter().filter(waits).collect();
    assert!(!ours.is_empty(), "{report}");
    for stack in ours {
        assert_eq!(stack["waker"]["tid"], said["holder"], "{stack}");
        let has = |part: &str, name: &str| {
            let mut frames = list(&stack["waker"], part).iter();
            frames.any(|frame| frame["name"] == name)
        };
        let reads = has("kernel", "__x64_sys_read") || has("kernel", "ksys_read");
        assert!(has("user", "hold") && reads, "{stack}");
    }
}

#[test]
fn a_pipe_is_known_by_the_number_that_proc_has() {
    let _machine = Machine::alone();
    let held = hold("w", 5, "");
    let inode = number(&held.said, "inode");
    assert_eq!(held.lock["name"], format!("pipe:[{inode}]"));
    is_slept_for(&held);
}

#[test]
fn a_wait_that_does_not_end_is_counted_and_marked() {
    let _machine = Machine::alone();
    for options in ["", "-i 3600"] {
        let Held {
            lock, said, report, ..
        } = hold("p", 0, options);
        let counts = (number(&lock, "contentions"), number(&lock, "open"));
        assert_eq!(counts, (1, 1));
        is_held_by(&lock, number(&said, "holder"), 1);
        // The program reported after 50 ms of it.
        let bounds = 50_000_000..number(&report, "duration_ns");
        assert_within("ns", number(&lock, "total_ns"), bounds, &lock);
        let mut stacks = list(&report, "stacks").iter();
        let stack = stacks.find(|stack| stack["tid"] == said["waiter"]);
        let stack = stack.expect("the waiter's stack");
        let is_ours = |frame: &Value| frame["name"] == "wait_for_it";
        assert!(list(stack, "user").iter().any(is_ours), "{stack}");
    }
}
