//! lockstat's report begins with the program's trouble, whatever it is made of, and not its idleness.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use oracle::futex::waits;
use oracle::{Bracket, Engine, Logs};

use crate::lockstat_played::waited;
use crate::prelude::*;
use crate::traced::logged;

fn program(source: &str, flags: &str) -> Program {
    Program::c("locks", source, format!("-pthread {flags}"))
}

const TEAM: &str = include_str!("../../workloads/locks/team.c");
const CRITICAL: &str = include_str!("../../workloads/locks/critical.c");
const MEANWHILE: &str = include_str!("../../workloads/locks/meanwhile.c");
const TURNS: &str = include_str!("../../workloads/locks/turns.c");
const POOL: &str = include_str!("../../workloads/locks/pool.c");
const STAGE: &str = include_str!("../../workloads/locks/stage.h");
const ROW: &str = include_str!("../../workloads/locks/row.c");

/// The library has no names for its barrier, and the last one to come is the one that the others wait for.
#[test]
fn a_team_waits_at_its_barrier_for_the_one_with_more_to_do() {
    let _machine = Machine::beside();
    let program = program(TEAM, "-fopenmp");
    let mut command = program.command("");
    command.env("OMP_WAIT_POLICY", "passive");
    let mut team = Workload::spawn("locks", command);
    let pid = team.pid();
    let start = || Tool::start("lockstat", format!("-j -p {pid}"));
    let (output, results, logs) = logged(&[Engine::Scheduler, Engine::LockCalls], start, &mut team);
    team.finish();
    let report = output.report();
    let locks = list(&report, "locks");
    assert_eq!(locks[0]["class"], "barrier");
    // Behind the last round two of them wait for the tool's end, and nobody releases them. Before the first one they may wait for one
    // that has no CPU yet.
    let rounds = number(&results[0], "waits");
    let is_teams = |lock: &&Value| number(lock, "contentions") >= rounds;
    let at = locks.iter().position(|lock| is_teams(&lock));
    let at = at.unwrap_or_else(|| panic!("no barrier of {rounds} waits: {report:#}"));
    let first = &locks[at];
    let waited_ns = number(first, "total_ns");
    assert!(
        locks[..at]
            .iter()
            .all(|lock| number(lock, "total_ns") >= waited_ns)
    );
    assert_eq!(
        (&first["class"], &first["for"]),
        (&"barrier".into(), &"others".into())
    );
    let slow = number(&results[0], "slow");
    let last = &list(first, "holders")[0];
    assert_eq!(number(last, "tid"), slow, "{first:#}");
    assert!(
        number(last, "caused_ns") * 10 > number(first, "total_ns") * 9,
        "{first:#}"
    );
    let late = &list(first, "last")[0];
    assert_eq!(number(late, "tid"), slow, "{first:#}");
    // The region's end is a round, too, to which anybody may come last.
    let came = number(&results[0], "last");
    let times = number(late, "times");
    assert!((came..=came + 1).contains(&times), "{came}: {first:#}");
    assert!(text(late, "caller").starts_with("main"), "{late:#}");
    assert!(
        list(late, "user").contains(&late["caller"]),
        "its stack: {late:#}"
    );
    let is_barrier = |lock: &&Value| lock["class"] == "barrier";
    let barriers: Vec<Value> = locks.iter().filter(is_barrier).cloned().collect();
    assert_logged(&barriers, first, &report, &logs);
}

/// The library has no names for what it waits in there, either.
#[test]
fn a_critical_section_is_a_lock() {
    let _machine = Machine::beside();
    let program = program(CRITICAL, "-fopenmp");
    let mut command = program.command("");
    command.env("OMP_WAIT_POLICY", "passive");
    let mut team = Workload::spawn("locks", command);
    let pid = team.pid();
    let start = || Tool::start("lockstat", format!("-U -j -p {pid}"));
    let (output, results, logs) = logged(&[Engine::Scheduler, Engine::LockCalls], start, &mut team);
    team.finish();
    let report = output.report();
    let locks = list(&report, "locks");
    let at = locks.iter().position(|lock| lock["class"] == "openmp-lock");
    let at = at.unwrap_or_else(|| panic!("no such lock: {report:#}"));
    let section = &locks[at];
    // A team whose region is over waits at a barrier for the tool's end.
    let before = &locks[..at];
    assert!(before.iter().all(|lock| lock["class"] == "barrier"));
    assert_eq!(section["for"], "others", "{section:#}");
    let least = number(&results[0], "waits");
    assert_within("waits", number(section, "contentions"), least.., section);
    assert_logged(locks, section, &report, &logs);
}

/// All waits of those that waited for this lock are at these locks, and the log's.
fn assert_logged(locks: &[Value], lock: &Value, report: &Value, logs: &Logs) {
    let waiters = list(lock, "waiters").iter();
    for tid in waiters
        .map(|waiter| number(waiter, "tid"))
        .collect::<BTreeSet<_>>()
    {
        let thread = u32::try_from(tid).expect("a thread ID");
        let log = waits(logs, thread, number(report, "end_ns")).expect("agreement");
        let truth: Bracket = log.iter().map(|wait| wait.pair).collect();
        assert_bracketed(tid, waited(locks, tid), &truth, &report["losses"]);
    }
}

/// Nobody owns a semaphore: what counts is what the one who posts it did before.
#[test]
fn who_made_a_thread_wait_did_what_it_says_it_did() {
    let _machine = Machine::beside();
    let program = program(MEANWHILE, "");
    let (report, results) = traced("lockstat", "-U --class all", program.start(""));
    let truth = &results[0];
    let waiter = |lock: &Value| number(&list(lock, "waiters")[0], "tid");
    let mut locks = list(&report, "locks").iter();
    // It waits longer for this one than for the other semaphore.
    let waited = locks.find(|lock| waiter(lock) == number(truth, "waiter"));
    let waited = waited.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(waited["class"], "sem", "{waited:#}");
    let by = &only(waited, "holders")["meanwhile_ns"];
    let [on_cpu, asleep, unknown] = ["on_cpu", "asleep", "unknown"].map(|what| number(by, what));
    // It does not remember all where others take its CPU away often, be it before its sleep or after.
    let [cpu_ns, slept_ns, most_ns] =
        ["least_cpu_ns", "asleep_ns", "most_ns"].map(|what| number(truth, what));
    assert_within(
        "in all",
        on_cpu + asleep + unknown,
        cpu_ns + slept_ns..,
        waited,
    );
    let [least, asleep_ns] = [cpu_ns, slept_ns].map(|ns| ns.saturating_sub(unknown));
    // Interrupts and a hypervisor's turns are on the CPU, too, and in no clock of the thread's.
    assert_within("on a CPU", on_cpu, least..=most_ns - slept_ns, waited);
    assert_within("asleep", asleep, asleep_ns..=most_ns, waited);
    assert_eq!((&by["disk"], &by["others"]), (&0.into(), &0.into()));
}

/// The threads that end waits have waited for most of the time, too: their doings since then count.
#[test]
fn who_takes_turns_with_a_lock_did_what_it_did_in_its_turn() {
    let _machine = Machine::beside();
    let (report, results) = traced("lockstat", "-U", program(TURNS, "").start(""));
    let lock = &list(&report, "locks")[0];
    assert_eq!(lock["class"], "sem", "{lock:#}");
    let (mut naps, mut asleep) = (0, 0);
    for holder in list(lock, "holders") {
        let by = &holder["meanwhile_ns"];
        assert_eq!(by["others"], 0, "{holder:#}");
        naps += number(holder, "waits");
        asleep += number(by, "asleep");
    }
    let [threads, nap_ns] = ["threads", "nap_ns"].map(|what| number(&results[0], what));
    let least = (naps - threads) * nap_ns;
    assert_within("asleep", asleep, least.., lock);
}

/// Both wait for a condition variable: servers further in than where they poll, workers where they have nothing to do.
#[test]
fn servers_wait_for_a_connection_and_workers_for_work() {
    let _machine = Machine::beside();
    let (report, _) = traced("lockstat", "", program(POOL, "").start(""));
    let first = &list(&report, "locks")[0];
    assert_eq!(first["class"], "cond", "{first:#}");
    assert!(text(first, "name").contains("returned"), "{first:#}");
    assert_eq!(
        (&first["for"], &first["caller"]),
        (&"others".into(), &"take_connection".into())
    );
    let is_idle = |lock: &&Value| text(lock, "name").contains("queued");
    assert_eq!(list(&report, "locks").iter().find(is_idle), None);
    let idle = only(&report, "left_out");
    let length = number(&report, "end_ns") - number(&report, "start_ns");
    assert_eq!(idle["class"], "cond", "{idle:#}");
    assert!(
        number(idle, "total_ns") > 3 * length,
        "four workers: {idle:#}"
    );
}

#[test]
fn a_program_of_idle_threads_waits_for_no_lock() {
    let _machine = Machine::beside();
    let program = program(POOL, "");
    let (output, _) = observed("lockstat", "-U", &mut program.start("0"));
    // Nobody ended a wait, and a lock may be made of a condition variable.
    let said = "No thread is known to have waited for a lock, or for another thread.\n\nidle: ";
    assert!(output.stdout.starts_with(said), "{}", output.stdout);
    assert!(
        output.stdout.contains("\n  nobody ended "),
        "{}",
        output.stdout
    );
    let (report, _) = reported("lockstat", "-U --class cond", &mut program.start("0"));
    let first = &list(&report, "locks")[0];
    assert_eq!(
        (&first["class"], &first["for"]),
        (&"cond".into(), &"work".into())
    );
}

#[test]
fn a_users_rule_names_a_lock_of_the_programs_own() {
    let _machine = Machine::beside();
    let program = program(POOL, "");
    let file = program.dir().join("rules");
    fs::write(
        &file,
        "take_connection - pool contention own\nwork locks worker contention\n",
    )
    .expect("a file");
    let options = format!("-U --rules {}", file.display());
    let (report, _) = traced("lockstat", &options, program.start(""));
    let of_class = |class: &str| {
        list(&report, "locks")
            .iter()
            .find(|lock| lock["class"] == class)
    };
    let pool = of_class("pool").unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(pool["caller"], "handle", "{pool:#}");
    assert!(of_class("worker").is_some(), "{report:#}");
    assert_eq!(list(&report, "left_out").len(), 0, "{report:#}");
}

/// The function that waits is nobody else's, and the program is stripped.
#[test]
fn a_function_without_a_name_is_known_by_what_it_calls() {
    let _machine = Machine::beside();
    let program = program(&format!("{STAGE}{ROW}"), "-rdynamic -s");
    let (report, results) = traced("lockstat", "-U", program.start(""));
    let is_row = |lock: &&Value| lock["class"] == "row-lock";
    let row = list(&report, "locks").iter().find(is_row);
    let row = row.unwrap_or_else(|| panic!("{report:#}"));
    let rounds = number(&results[0], "rounds");
    assert_eq!(number(row, "contentions"), rounds, "{row:#}");
    let held_ns = 20_000_000 * rounds;
    let length = number(&report, "end_ns") - number(&report, "start_ns");
    assert_within("waits", number(row, "total_ns"), held_ns..=length, row);
    assert_eq!(
        (&row["name"], &row["caller"], &row["for"]),
        (&"in lock_row".into(), &"lock_row".into(), &"others".into())
    );
    let waiters = list(row, "waiters").iter();
    let tids: BTreeSet<u64> = waiters.map(|waiter| number(waiter, "tid")).collect();
    assert_eq!(tids, BTreeSet::from([number(&results[0], "waiter")]));
    assert_eq!(
        number(only(row, "holders"), "tid"),
        number(&results[0], "holder")
    );
}

/// Debian's Python with a script that says when it is ready, and runs until its stdin ends.
fn python(script: &str) -> Child {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().expect("Python");
    let mut ready = [0; 6];
    let stdout = program.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut ready).expect("it runs");
    program
}

/// Python's conditions are made of its locks, and its functions say which it is: a queue's are one thing, by who takes from it.
#[test]
fn a_worker_of_pythons_is_not_said_to_wait_for_others() {
    let _machine = Machine::beside();
    let script = "import queue, sys, threading, time\n\
                  jobs = queue.Queue()\n\
                  def work():\n\
                  \x20   while True:\n\
                  \x20       jobs.get()\n\
                  \x20       time.sleep(0.001)\n\
                  def ask():\n\
                  \x20   while True:\n\
                  \x20       jobs.put(1)\n\
                  \x20       time.sleep(0.005)\n\
                  for run in work, work, work, ask:\n\
                  \x20   threading.Thread(target=run, daemon=True).start()\n\
                  print('ready', flush=True)\n\
                  sys.stdin.read()\n";
    let mut program = python(script);
    let args = format!("-U -j --class cond -p {} 1", program.id());
    let report = Tool::start("lockstat", args).finish().report();
    drop(program.stdin.take());
    program.wait().expect("its end");
    let is_queue =
        |lock: &&Value| lock["class"] == "cond" && text(lock, "name").contains("in work (");
    let waits: Vec<&Value> = list(&report, "locks").iter().filter(is_queue).collect();
    assert_eq!(waits.len(), 1, "{report:#}");
    for wait in waits {
        assert_ne!(wait["for"], "others", "{wait:#}");
    }
}

/// Its only thread polls, and no wait of its tasks is one of a thread's.
#[test]
fn a_program_with_tasks_is_said_to_have_waits_that_nobody_sees() {
    let _machine = Machine::beside();
    let script = "import asyncio, sys\n\
                  async def main():\n\
                  \x20   print('ready', flush=True)\n\
                  \x20   await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)\n\
                  asyncio.run(main())\n";
    let mut program = python(script);
    let output = Tool::start("lockstat", format!("-U -p {} 0.2", program.id())).finish();
    drop(program.stdin.take());
    program.wait().expect("its end");
    let said = format!(
        "lockstat: python3 {} runs asyncio, an async runtime:\nlockstat:   its tasks' waits are not shown\n",
        program.id()
    );
    assert!(output.stderr.contains(&said), "{}", output.stderr);
}
