//! A database under a load that wants one row: lockstat's account of its semaphores against the log of the kernel's events.

use std::collections::BTreeSet;
use std::fs;

use oracle::{Below, Bracket, Engine, Logs, futex};

use crate::c_program::run;
use crate::lockstat_played::waited;
use crate::postgres::{CLIENTS, Server};
use crate::prelude::*;

#[test]
fn processes_that_wait_for_one_row_are_shown_where_they_do() {
    let _machine = Machine::alone();
    let server = Server::start();
    let table = "CREATE TABLE hot AS SELECT 1 AS id, 0 AS n";
    run(server.command("psql").args(["-q", "-c", table, "postgres"]));
    let folded = server.dir.path().join("waits.folded");
    let options = "-U -j --class sem,unknown --comm postgres -o";
    let below = Below::attach(&[Engine::Scheduler, Engine::LockCalls]).expect("the oracle");
    let tool = Tool::attached("lockstat", format!("{options} {}", folded.display()));
    let around = below.around().expect("the oracle");
    server.one_hot_row();
    server.await_no_clients();
    tool.interrupt();
    let report = tool.finish().report();
    let logs = around.take().expect("whole logs");
    let total_ns = assert_semaphores(&report, &logs, &server.processes());

    // The folded stacks have the same sum, and name the culprit: who changes a row waits in the lock manager for who has changed it.
    let text = fs::read_to_string(&folded).expect("folded stacks");
    let through = |function: &str| folded_sum(text.lines().filter(|line| line.contains(function)));
    let (all, update) = (through(";"), through(";heap_update;"));
    eprintln!("{update} of {all} us in heap_update");
    let semaphores = through(";PGSemaphoreLock;");
    assert!(semaphores.abs_diff(total_ns / 1000) <= 1 + text.lines().count() as u64);
    assert!(update * 2 > all && through(";LWLockAcquire;") * 10 > semaphores * 9);
    // A row is of what all of them wait for, in any call that they sleep in.
    let locks = list(&report, "locks");
    assert_eq!(locks[0]["class"], "lock");
    assert_eq!(number(&locks[0], "pid"), u64::from(server.pid()));
    let names: BTreeSet<_> = locks
        .iter()
        .map(|lock| {
            (
                crate::found::text(lock, "class"),
                crate::found::text(lock, "name"),
            )
        })
        .collect();
    assert_eq!(names.len(), locks.len(), "{names:?}");
}

/// Each process waited as often as the log says, for a time inside its bracket. Gives the sum, ns.
fn assert_semaphores(report: &Value, logs: &Logs, processes: &BTreeSet<u32>) -> u64 {
    let locks = list(report, "locks").iter().filter(is_semaphore);
    let locks: Vec<Value> = locks.cloned().collect();
    let (mut total, mut raced, mut waiters) = ((0, 0), 0, 0);
    for process in processes {
        let waits = futex::waits(logs, *process, number(report, "end_ns")).expect("agreement");
        let truth: Bracket = waits.iter().map(|wait| wait.pair).collect();
        let (count, ns) = waited(&locks, (*process).into());
        assert_bracketed(process, (count, ns), &truth, &report["losses"]);
        total = (total.0 + count, total.1 + ns);
        raced += futex::raced(logs, *process, u64::MAX).expect("agreement");
        waiters += u64::from(count > 0);
    }
    eprintln!("{total:?} of {waiters} processes, {raced} raced");
    let sums = ["contentions", "total_ns", "raced"].map(|field| sum(&locks, field));
    assert_eq!(sums, [total.0, total.1, raced]);
    assert!(waiters >= CLIENTS, "{waiters} processes waited");
    total.1
}

/// These are waited for on semaphores, all others in other calls. A process that takes itself out of a queue sleeps without an event,
/// so that its futex has whatever class it is taken for.
fn is_semaphore(lock: &&Value) -> bool {
    let groups = ["ProcArrayGroupUpdate", "XactGroupUpdate"];
    let others = ["lock", "bufferpin", "io", "ipc", "extension"];
    let is_group = groups.iter().any(|group| lock["name"] == *group);
    is_group || others.iter().all(|class| lock["class"] != *class)
}
