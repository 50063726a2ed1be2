//! lockstat's account of programs' locks against that of the programs, which time their waits and know who made them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};
use crate::{c_program, kernel};

/// What programs begin with: rounds of holding a lock until somebody sleeps on it.
const STAGE: &str = include_str!("../workloads/locks/stage.h");
const PTHREAD: &str = include_str!("../workloads/locks/pthread.c");

/// One kind of waiting, as the program saw it.
struct Played {
    name: String,
    class: String,
    rounds: u64,
    waited_ns: u64,
    waiter: u64,
    holder: u64,
}

impl Played {
    fn of(result: &Value) -> Self {
        let text = |field: &str| result[field].as_str().expect("text").to_owned();
        Self {
            name: text("name"),
            class: text("class"),
            rounds: number(result, "rounds"),
            waited_ns: number(result, "waited_ns"),
            waiter: number(result, "waiter"),
            holder: number(result, "holder"),
        }
    }

    /// The lock that this was played on: the only one of its class that this thread waited for.
    fn find<'a>(&self, locks: &'a [Value]) -> &'a Value {
        let mut found = locks
            .iter()
            .filter(|lock| lock["class"] == *self.class && self.waited_for(lock));
        let lock = found
            .next()
            .unwrap_or_else(|| panic!("no {} {} in {locks:#?}", self.class, self.name));
        assert!(found.next().is_none(), "{} is one lock", self.name);
        lock
    }

    fn waited_for(&self, lock: &Value) -> bool {
        let mut waiters = lock["waiters"].as_array().expect("waiters").iter();
        waiters.any(|waiter| number(waiter, "tid") == self.waiter)
    }

    /// Counts are exact, times within 2 % of the program's.
    fn assert_counted(&self, lock: &Value) {
        let (count, total_ns) = (number(lock, "contentions"), number(lock, "total_ns"));
        let share = total_ns as f64 / self.waited_ns as f64;
        eprintln!(
            "{} {}: {count} waits, {share:.4} of the time",
            self.class, self.name
        );
        assert_eq!(count, self.rounds, "{}: {lock:#}", self.name);
        assert!(
            (0.98..=1.02).contains(&share),
            "{}: {share:.4}: {lock:#}",
            self.name
        );
    }

    /// The thread that had it, all the time, known in this way.
    fn assert_held(&self, lock: &Value, known_as: &str) {
        let holders = lock["holders"].as_array().expect("holders");
        assert_eq!(holders.len(), 1, "{}: {lock:#}", self.name);
        assert_eq!(number(&holders[0], "tid"), self.holder, "{}", self.name);
        assert_eq!(holders[0]["known_as"], known_as, "{}", self.name);
        assert_eq!(number(&holders[0], "waits"), self.rounds, "{}", self.name);
    }
}

/// Plays a program under `lockstat -U -j --class all` and returns what both say.
fn play(command: Command, args: &[&str]) -> (Vec<Played>, Vec<Value>, Output) {
    let (mut program, pid) = Workload::spawn("locks", command);
    let pid = pid.to_string();
    let args = [&["-U", "-j", "--class", "all", "-p", &pid], args].concat();
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

fn compile(dir: &Path, source: &str, flags: &[&str]) -> Command {
    let source = format!("{STAGE}{source}");
    let flags = [&["-pthread"], flags].concat();
    Command::new(c_program::compile(dir, "locks", &source, &flags))
}

/// How lockstat knows who held a lock of this name.
fn known_as(name: &str) -> &'static str {
    match name {
        // Readers leave no names.
        "lock_readers" | "lock_cond" | "lock_sem" | "lock_barrier" => "waker",
        _ => "owner",
    }
}

fn assert_named(played: &Played, lock: &Value) {
    let name = lock["name"].as_str().expect("a name");
    // The mutex in front of it has two words more than the condition variable, whose name is the structure's.
    let expected = match played.name.as_str() {
        "lock_cond" => "locks.data: lock_cond+0x28".to_owned(),
        other => other.to_owned(),
    };
    let (_, variable) = expected.rsplit_once(' ').unwrap_or(("", &expected));
    assert!(
        name.ends_with(&format!(": {variable}")),
        "{name}: {variable}"
    );
    assert!(name.starts_with("locks."), "{name}");
}

/// The lock that is a variable of this name.
fn named<'a>(locks: &'a [Value], variable: &str) -> &'a Value {
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

/// Every thread is a lock of its own to those who wait for its end, and its own holder.
fn assert_joined(played: &Played, locks: &[Value]) {
    let joins = locks
        .iter()
        .filter(|lock| lock["class"] == "join" && played.waited_for(lock));
    let (mut count, mut total_ns, mut joined) = (0, 0, 0);
    for lock in joins {
        count += number(lock, "contentions");
        total_ns += number(lock, "total_ns");
        let holders = lock["holders"].as_array().expect("holders");
        joined += holders.len() as u64;
        assert!(holders.iter().all(|h| h["known_as"] == "owner"), "{lock:#}");
    }
    let share = total_ns as f64 / played.waited_ns as f64;
    assert_eq!((count, joined), (played.rounds, played.rounds));
    assert!((0.98..=1.02).contains(&share), "join: {share:.4}");
}

fn assert_pthread(played: &[Played], locks: &[Value]) {
    for one in played {
        match one.class.as_str() {
            "raced" => {
                let lock = named(locks, &one.name);
                assert_eq!(number(lock, "raced"), one.rounds, "{lock:#}");
                assert_eq!(number(lock, "contentions"), 0, "{lock:#}");
                continue;
            }
            "join" => {
                assert_joined(one, locks);
                continue;
            }
            _ => {}
        }
        let lock = one.find(locks);
        one.assert_counted(lock);
        one.assert_held(lock, known_as(&one.name));
        assert_named(one, lock);
        let gave_up = if one.name == "lock_late" {
            one.rounds
        } else {
            0
        };
        assert_eq!(number(lock, "gave_up"), gave_up, "{}", one.name);
    }
}

#[test]
fn pthread_locks_have_the_waits_that_the_program_timed_and_the_holders_that_it_knows() {
    if !kernel::require_live() {
        return;
    }
    let _cpus = kernel::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let (played, locks, output) = play(compile(dir.path(), PTHREAD, &[]), &["--strict"]);
    assert_pthread(&played, &locks);
    let complete = "user stacks complete for 100% of the time";
    assert!(output.stderr.contains(complete), "{}", output.stderr);
    assert_eq!(
        named(&locks, "lock_normal")["caller"],
        "take_mutex",
        "outside glibc"
    );
}

#[test]
fn rusts_locks_and_parking_lots_are_known_by_their_functions() {
    if !kernel::require_live() {
        return;
    }
    let _cpus = kernel::alone();
    let program = Command::new(Workload::program("rustlocks"));
    let (played, locks, _) = play(program, &["--strict"]);
    for one in &played {
        let lock = one.find(&locks);
        one.assert_counted(lock);
        one.assert_held(lock, "waker");
        if one.class == "rust" {
            let name = lock["name"].as_str().expect("a name");
            assert!(name.contains(&format!("rustlocks::{}", one.name)), "{name}");
        }
        let caller = lock["caller"].as_str().expect("a caller");
        assert!(caller.starts_with("rustlocks::"), "{caller}");
    }
    assert_eq!(played.len(), 8);
}
