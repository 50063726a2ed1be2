//! Programs that wait for locks in rounds, played under lockstat: what they say, and what it says.

use std::ops::RangeInclusive;
use std::process::Command;

use serde_json::Value;

use crate::cpu_times::{stolen_ns, stolen_of};
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

/// One kind of waiting, as the program saw it.
pub(crate) struct Played {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) rounds: u64,
    pub(crate) waited_ns: u64,
    /// Of these, just before the wait was moved to another futex, and just after.
    pub(crate) moved_ns: RangeInclusive<u64>,
    /// CPU time of the waiter while it waited.
    pub(crate) worked_ns: u64,
    /// What it waited for a CPU in rounds in which it was driven from one.
    driven_off_ns: u64,
    /// By how much more than a millisecond its rounds were longer than most.
    late_ns: u64,
    pub(crate) waiter: u64,
    pub(crate) holder: u64,
}

impl Played {
    pub(crate) fn of(result: &Value) -> Self {
        let text = |field: &str| result[field].as_str().expect("text").to_owned();
        let ns = |field: &str| result[field].as_u64().unwrap_or(0);
        Self {
            name: text("name"),
            class: text("class"),
            rounds: number(result, "rounds"),
            waited_ns: number(result, "waited_ns"),
            moved_ns: ns("moving_ns")..=ns("moved_ns"),
            worked_ns: ns("worked_ns"),
            driven_off_ns: ns("driven_off_ns"),
            late_ns: ns("late_ns"),
            waiter: number(result, "waiter"),
            holder: number(result, "holder"),
        }
    }

    /// The lock that this was played on: the only one of its class that this thread waited for.
    pub(crate) fn find<'a>(&self, locks: &'a [Value]) -> &'a Value {
        let mut found = locks
            .iter()
            .filter(|lock| lock["class"] == *self.class && self.waited_for(lock));
        let lock = found
            .next()
            .unwrap_or_else(|| panic!("no {} {} in {locks:#?}", self.class, self.name));
        assert!(found.next().is_none(), "{} is one lock", self.name);
        lock
    }

    pub(crate) fn waited_for(&self, lock: &Value) -> bool {
        let mut waiters = lock["waiters"].as_array().expect("waiters").iter();
        waiters.any(|waiter| number(waiter, "tid") == self.waiter)
    }

    /// Counts are exact, times within 2 % of the program's.
    pub(crate) fn assert_counted(&self, lock: &Value) {
        self.assert_count(lock);
        assert_time_in(&self.name, number(lock, "total_ns"), self.asleep_ns());
    }

    /// What it was on its CPU, or driven from it, it need not have been asleep. What a hypervisor takes is in neither.
    pub(crate) fn asleep_ns(&self) -> RangeInclusive<u64> {
        self.waited_ns.saturating_sub(self.awake_ns())..=self.waited_ns
    }

    /// Where a wait is moved: the first part of that, and the second.
    pub(crate) fn asleep_parts_ns(&self) -> [RangeInclusive<u64>; 2] {
        let least_ns = |most: u64| most.saturating_sub(self.awake_ns());
        let (moving, moved) = (*self.moved_ns.start(), *self.moved_ns.end());
        [
            least_ns(moving)..=moved,
            least_ns(self.waited_ns - moved)..=self.waited_ns - moving,
        ]
    }

    fn awake_ns(&self) -> u64 {
        // But for a PI lock it spins, and waits.
        let worked_ns = if self.class == "pi" {
            0
        } else {
            self.worked_ns
        };
        worked_ns + self.driven_off_ns + stolen_of(self.late_ns)
    }

    pub(crate) fn assert_count(&self, lock: &Value) {
        let count = number(lock, "contentions");
        assert_eq!(count, self.rounds, "{}: {lock:#}", self.name);
    }

    /// The thread that had it, all the time, known in this way.
    pub(crate) fn assert_held(&self, lock: &Value, known_as: &str) {
        let holders = lock["holders"].as_array().expect("holders");
        assert_eq!(holders.len(), 1, "{}: {lock:#}", self.name);
        assert_eq!(number(&holders[0], "tid"), self.holder, "{}", self.name);
        assert_eq!(holders[0]["known_as"], known_as, "{}", self.name);
        assert_eq!(number(&holders[0], "waits"), self.rounds, "{}", self.name);
    }
}

/// Of what a hypervisor took while the tool ran, hardly more than this part of a wait was in its ways to sleep, and back.
const MOST_STOLEN: f64 = 0.1;

/// Within 2 % of the program's. A hypervisor may have taken the CPU on the way to sleep, or back.
pub(crate) fn assert_time(name: &str, total_ns: u64, expected_ns: u64) {
    let stolen_ns = stolen_ns().min((MOST_STOLEN * expected_ns as f64) as u64);
    assert_time_in(name, total_ns, expected_ns - stolen_ns..=expected_ns);
}

/// Within 2 % of what the program says of itself: at least so much, and at most.
pub(crate) fn assert_time_in(name: &str, total_ns: u64, expected_ns: RangeInclusive<u64>) {
    let most_ns = *expected_ns.end() as f64;
    let (share, least) = (
        total_ns as f64 / most_ns,
        *expected_ns.start() as f64 / most_ns,
    );
    eprintln!("{name}: {share:.4} of the time, {least:.4} at least");
    assert!(
        (0.98 * least..=1.02).contains(&share),
        "{name}: {share:.4}, {least:.4} at least"
    );
}

/// Plays a program under `lockstat -U -j --class all` and returns what both say.
pub(crate) fn play(command: Command, args: &[&str]) -> (Vec<Played>, Vec<Value>, Output) {
    let (program, pid) = Workload::spawn("locks", command);
    let pid = pid.to_string();
    play_among(program, &[&["-p", &pid], args].concat())
}

/// As `play`, with targets of one's own choosing.
pub(crate) fn play_among(
    mut program: Workload,
    args: &[&str],
) -> (Vec<Played>, Vec<Value>, Output) {
    let args = [&["-U", "-j", "--class", "all"], args].concat();
    let tool = Tool::start("lockstat", &args);
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

/// As `play`, for a time of the tool's choosing.
pub(crate) fn play_for(command: Command, seconds: &str) -> (Vec<Played>, Vec<Value>, Output) {
    let (mut program, pid) = Workload::spawn("locks", command);
    let pid = pid.to_string();
    let tool = Tool::start(
        "lockstat",
        &["-U", "-j", "--class", "all", "-p", &pid, seconds],
    );
    let output = tool.finish();
    program.go();
    program.results();
    program.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let locks = report["locks"].as_array().expect("locks").clone();
    (Vec::new(), locks, output)
}
