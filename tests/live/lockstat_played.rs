//! Programs that wait for locks in rounds, played under lockstat: what they say, what it says, and what the kernel did.

use std::collections::BTreeSet;

use oracle::futex::{Wait, waits, waits_of_sleeper};
use oracle::{Bracket, Engine, Logs};

use crate::kernel::{id_of, is_in_call, tasks};
use crate::prelude::*;
use crate::traced::logged;

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
        Self {
            name: text(result, "name").to_owned(),
            class: text(result, "class").to_owned(),
            rounds: number(result, "rounds"),
            waiter: number(result, "waiter"),
            holder: number(result, "holder"),
        }
    }

    /// The lock that this was played on: the only one of its class that this thread waited for.
    pub(crate) fn find<'a>(&self, locks: &'a [Value]) -> &'a Value {
        let is_it = |lock: &&Value| lock["class"] == *self.class && waited_for(lock, self.waiter);
        let found: Vec<&Value> = locks.iter().filter(is_it).collect();
        let [lock] = found[..] else {
            panic!("not one {} {} in {locks:#?}", self.class, self.name)
        };
        lock
    }

    /// The thread that had it, all the time, known in this way.
    pub(crate) fn assert_held(&self, lock: &Value, known_as: &str) {
        let holder = only(lock, "holders");
        assert_eq!(number(holder, "tid"), self.holder, "{}", self.name);
        assert_eq!(holder["known_as"], known_as, "{}", self.name);
        assert_eq!(holder["waits"], lock["contentions"], "{lock:#}");
    }
}

/// Threads of a process that sleep in futex(2).
fn sleepers(pid: u32) -> BTreeSet<u64> {
    let futex = format!("{} ", libc::SYS_futex);
    let tasks = tasks(pid).into_iter();
    let asleep = tasks.filter(|task| is_in_call(task, &futex));
    asleep
        .filter_map(|task| id_of(&task).map(u64::from))
        .collect()
}

fn rows_of(lock: &Value, tid: u64) -> impl Iterator<Item = &Value> {
    let waiters = list(lock, "waiters").iter();
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
        list(&self.report, "locks")
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
        let own = waited([lock], played.waiter).0;
        assert_eq!(number(lock, "contentions"), own, "nobody else: {lock:#}");
    }

    /// Its waits on these locks are those that `wanted` holds for.
    pub(crate) fn assert_waits(
        &self,
        played: &Played,
        locks: &[&Value],
        wanted: impl Fn(&Wait) -> bool,
    ) {
        let (name, losses) = (&played.name, &self.report["losses"]);
        let log = self.waits_of(played.waiter).into_iter();
        let truth: Bracket = log.filter(&wanted).map(|wait| wait.pair).collect();
        let found = waited(locks.iter().copied(), played.waiter);
        assert_bracketed(name, found, &truth, losses);
        // Some kernels hide from BPF that a thread leaves its CPU.
        let unseen = number(losses, "futex_unseen");
        assert_all(name, found.0, unseen, played.rounds, "waits in rounds");
    }
}

const COMMON: &str = "-U -j --class all";

/// Plays a program under `lockstat -U -j --class all`, between two logs.
pub(crate) fn account(program: Workload, args: &str) -> Account {
    let args = format!("-p {} {args}", program.pid());
    account_among(program, &args)
}

/// As `account`, with targets of one's own choosing.
pub(crate) fn account_among(mut program: Workload, args: &str) -> Account {
    let pid = program.pid();
    let mut asleep = BTreeSet::new();
    let start = || {
        asleep = sleepers(pid);
        Tool::start("lockstat", format!("{COMMON} {args}"))
    };
    let engines = &[Engine::Scheduler, Engine::LockCalls];
    let (output, results, logs) = logged(engines, start, &mut program);
    program.finish();
    Account {
        played: results.iter().map(Played::of).collect(),
        report: output.last_report(),
        output,
        logs,
        sleepers: asleep,
    }
}

/// Plays a program under the tool alone; gives what both say.
pub(crate) fn play(mut program: Workload) -> (Vec<Played>, Value) {
    let args = format!("{COMMON} -p {}", program.pid());
    let tool = Tool::attached("lockstat", args);
    program.go();
    let played = program.results().iter().map(Played::of).collect();
    let output = tool.end();
    program.finish();
    (played, output.last_report())
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
