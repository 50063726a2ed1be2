//! Programs that wait for locks in rounds, played under lockstat: what they say, what it says, and what the kernel did.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use oracle::futex::{Wait, waits, waits_of_sleeper};
use oracle::{Bracket, Engine, Logs};
use serde_json::Value;

use crate::tool::{Output, Tool};
use crate::traced::logged;
use crate::workload::{Workload, number};

/// One kind of waiting, as the program knows it.
pub(crate) struct Played {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) rounds: u64,
    pub(crate) waiter: u64,
    pub(crate) holder: u64,
}

impl Played {
    pub(crate) fn of(result: &Value) -> Self {
        let text = |field: &str| result[field].as_str().expect("text").to_owned();
        Self {
            name: text("name"),
            class: text("class"),
            rounds: number(result, "rounds"),
            waiter: number(result, "waiter"),
            holder: number(result, "holder"),
        }
    }

    /// The lock that this was played on: the only one of its class that this thread waited for.
    pub(crate) fn find<'a>(&self, locks: &'a [Value]) -> &'a Value {
        let mut found = locks
            .iter()
            .filter(|lock| lock["class"] == *self.class && waited_for(lock, self.waiter));
        let lock = found
            .next()
            .unwrap_or_else(|| panic!("no {} {} in {locks:#?}", self.class, self.name));
        assert!(found.next().is_none(), "{} is one lock", self.name);
        lock
    }

    /// The thread that had it, all the time, known in this way.
    pub(crate) fn assert_held(&self, lock: &Value, known_as: &str) {
        let holders = lock["holders"].as_array().expect("holders");
        assert_eq!(holders.len(), 1, "{}: {lock:#}", self.name);
        assert_eq!(number(&holders[0], "tid"), self.holder, "{}", self.name);
        assert_eq!(holders[0]["known_as"], known_as, "{}", self.name);
        assert_eq!(
            holders[0]["waits"], lock["contentions"],
            "{}: {lock:#}",
            self.name
        );
    }
}

/// Threads of a process that sleep in futex(2).
fn sleepers(pid: u32) -> BTreeSet<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let in_futex = |path: &Path| {
        let call = fs::read_to_string(path.join("syscall"));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_futex)))
    };
    let paths = threads.map(|thread| thread.expect("an entry").path());
    let paths = paths.filter(|path| in_futex(path));
    let tids = paths.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    tids.collect()
}

fn rows_of(lock: &Value, tid: u64) -> impl Iterator<Item = &Value> {
    let waiters = lock["waiters"].as_array().expect("waiters").iter();
    waiters.filter(move |waiter| number(waiter, "tid") == tid)
}

pub(crate) fn waited_for(lock: &Value, tid: u64) -> bool {
    rows_of(lock, tid).next().is_some()
}

/// How often a thread waited for locks, and for how long, ns.
pub(crate) fn waited<'a>(locks: impl IntoIterator<Item = &'a Value>, tid: u64) -> (u64, u64) {
    let rows = locks.into_iter().flat_map(|lock| rows_of(lock, tid));
    rows.fold((0, 0), |(count, ns), row| {
        (count + number(row, "count"), ns + number(row, "total_ns"))
    })
}

/// What lockstat says of a program, what that says of itself, and the waits of its threads in the log of the kernel's events.
pub(crate) struct Account {
    pub(crate) played: Vec<Played>,
    pub(crate) report: Value,
    pub(crate) output: Output,
    logs: Logs,
    /// Threads that slept on a futex when all began.
    sleepers: BTreeSet<u64>,
}

impl Account {
    pub(crate) fn locks(&self) -> &[Value] {
        self.report["locks"].as_array().expect("locks")
    }

    pub(crate) fn waits_of(&self, tid: u64) -> Vec<Wait> {
        let window = number(&self.report, "start_ns")..number(&self.report, "end_ns");
        let thread = u32::try_from(tid).expect("a thread ID");
        let waits = if self.sleepers.contains(&tid) {
            waits_of_sleeper(&self.logs, thread, &window)
        } else {
            waits(&self.logs, thread, window.end)
        };
        waits.expect("logs that agree")
    }

    /// The thread's waits are all on this lock: their number is exact, their time inside the bracket.
    pub(crate) fn assert_counted(&self, played: &Played, lock: &Value) {
        self.assert_waits(played, &[lock], |_| true);
        assert_eq!(
            number(lock, "contentions"),
            waited([lock], played.waiter).0,
            "{}: nobody else waited: {lock:#}",
            played.name
        );
    }

    /// Its waits on these locks are those that `wanted` holds for.
    pub(crate) fn assert_waits(
        &self,
        played: &Played,
        locks: &[&Value],
        wanted: impl Fn(&Wait) -> bool,
    ) {
        let log = self.waits_of(played.waiter).into_iter();
        let truth: Bracket = log.filter(&wanted).map(|wait| wait.pair).collect();
        let (count, ns) = waited(locks.iter().copied(), played.waiter);
        eprintln!("{}: {count} waits, {ns} ns; {truth:?}", played.name);
        assert!(
            truth.holds(count, ns),
            "{}: {count} waits, {ns} ns; {truth:?}; {}",
            played.name,
            self.report["losses"]
        );
        // Some kernels hide from BPF that a thread leaves its CPU.
        let unseen = number(&self.report, "losses.futex_unseen");
        assert!(
            count <= played.rounds && count + unseen >= played.rounds,
            "{}: {count} waits in {} rounds, {unseen} unseen",
            played.name,
            played.rounds
        );
    }
}

const COMMON: [&str; 4] = ["-U", "-j", "--class", "all"];

/// Plays a program under `lockstat -U -j --class all`, between two logs.
pub(crate) fn account(command: Command, args: &[&str]) -> Account {
    let (program, pid) = Workload::spawn("locks", command);
    let pid = pid.to_string();
    account_among(program, &[&["-p", &pid], args].concat())
}

/// As `account`, with targets of one's own choosing.
pub(crate) fn account_among(mut program: Workload, args: &[&str]) -> Account {
    let pid = program.pid();
    let mut asleep = BTreeSet::new();
    let start = || {
        asleep = sleepers(pid);
        Tool::start("lockstat", &[&COMMON, args].concat())
    };
    let engines = &[Engine::Scheduler, Engine::Calls];
    let (output, results, logs) = logged(engines, start, &mut program);
    program.finish();
    let line = output.stdout.lines().last().expect("a report");
    let report: Value = serde_json::from_str(line).expect("JSON");
    Account {
        played: results.iter().map(Played::of).collect(),
        report,
        output,
        logs,
        sleepers: asleep,
    }
}

/// Plays a program under the tool alone, and returns what both say.
pub(crate) fn play(command: Command, args: &[&str]) -> (Vec<Played>, Vec<Value>, Output) {
    let (mut program, pid) = Workload::spawn("locks", command);
    let pid = pid.to_string();
    let tool = Tool::start("lockstat", &[&COMMON, &["-p", &*pid][..], args].concat());
    tool.wait_attached();
    program.go();
    let played = program.results().iter().map(Played::of).collect();
    tool.interrupt();
    let output = tool.finish();
    program.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let line = output.stdout.lines().last().expect("a report");
    let report: Value = serde_json::from_str(line).expect("JSON");
    let locks = report["locks"].as_array().expect("locks").clone();
    (played, locks, output)
}

/// The lock that is a variable of this name.
pub(crate) fn named<'a>(locks: &'a [Value], variable: &str) -> &'a Value {
    let end = format!(": {variable}");
    let is_named = |lock: &&Value| {
        lock["name"]
            .as_str()
            .is_some_and(|name| name.ends_with(&end))
    };
    let found: Vec<&Value> = locks.iter().filter(is_named).collect();
    assert_eq!(found.len(), 1, "{variable} in {locks:#?}");
    found[0]
}

/// Where a lock is, in the one process that has it.
pub(crate) fn address(lock: &Value) -> u64 {
    let text = lock["address"]
        .as_str()
        .and_then(|text| text.strip_prefix("0x"));
    text.and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .expect("an address")
}
