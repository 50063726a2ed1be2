//! `lockstat` on a program in Java: what its threads wait for has a name, whatever word they sleep on, and holders.

use std::path::Path;

use oracle::futex::waits_of_sleeper;
use oracle::{Bracket, Engine, Logs};

use crate::beside::lockstat_now_java::{compiled, machines, started};
use crate::lockstat_played::{waited, waited_for};
use crate::prelude::*;
use crate::traced::logged;

/// Kinds of waiting, and the classes and names of what is waited for.
const KINDS: [(&str, &str, &str); 6] = [
    ("lock", "java-lock", "ReentrantLock 0x"),
    ("write", "java-lock", "ReentrantReadWriteLock 0x"),
    ("permit", "sem", "Semaphore 0x"),
    ("monitor", "monitor", "Locks$Shelf 0x"),
    ("future", "future", "FutureTask"),
    ("connection", "cond", "ConditionObject 0x"),
];
const THREADS: usize = 3;

/// Ways in which objects and their classes are known; machines pass over what they do not know.
const OPTIONS: [&str; 3] = [
    "-XX:+UseCompactObjectHeaders",
    "-XX:-UseCompressedOops",
    "-XX:+UseZGC",
];

/// A thread's waits are all on its lock and its naps, and the kernel's log has as many. Who has a lock is one of those who take turns.
#[test]
fn locks_of_java_are_known_by_their_objects() {
    let _machine = Machine::beside();
    let dir = compiled("Locks");
    for java in machines() {
        for options in OPTIONS {
            eprintln!("{} {options}", java.display());
            Played::under(&java, options, dir.path()).assert_all();
        }
    }
}

/// A run of the program: lockstat's words, its own, and the kernel's.
struct Played {
    /// The report of lockstat --now, before the players began.
    now: Value,
    report: Value,
    results: Vec<Value>,
    logs: Logs,
}

impl Played {
    fn under(java: &Path, options: &str, classes: &Path) -> Self {
        let mut program = started(java, options, classes, "Locks");
        let pid = program.pid();
        let now = Tool::start("lockstat", format!("--now -j -p {pid}"))
            .finish()
            .report();
        let start = || Tool::start("lockstat", format!("-U -j --class all -p {pid}"));
        let engines = &[Engine::Scheduler, Engine::LockCalls];
        let (output, results, logs) = logged(engines, start, &mut program);
        program.finish();
        Self {
            now,
            report: output.report(),
            results,
            logs,
        }
    }

    fn assert_all(&self) {
        for (kind, class, name) in KINDS {
            let is_player = |result: &&Value| result["kind"] == kind;
            let players: Vec<&Value> = self.results.iter().filter(is_player).collect();
            assert_eq!(players.len(), THREADS, "{:#?}", self.results);
            for player in &players {
                self.assert_thread(player);
            }
            self.assert_lock(&players, class, name);
        }
        self.assert_kept();
        self.assert_idle();
    }

    /// The executor's thread has nothing to do where it waits for its own queue.
    fn assert_idle(&self) {
        let is_workers = |lock: &&Value| {
            let mut waiters = list(lock, "waiters").iter();
            let is_queue = text(lock, "name").starts_with("ConditionObject 0x");
            is_queue && waiters.any(|waiter| waiter["comm"] == "worker")
        };
        let queues: Vec<&Value> = self.locks().iter().filter(is_workers).collect();
        assert!(!queues.is_empty(), "{:#?}", self.locks());
        for queue in queues {
            assert_eq!(queue["for"], "work", "{queue:#}");
        }
    }

    fn locks(&self) -> &[Value] {
        list(&self.report, "locks")
    }

    fn assert_thread(&self, player: &Value) {
        let tid = number(player, "tid");
        let window = number(&self.report, "start_ns")..number(&self.report, "end_ns");
        let thread = u32::try_from(tid).expect("a thread ID");
        let log = waits_of_sleeper(&self.logs, thread, &window).expect("logs that agree");
        let truth: Bracket = log.iter().map(|wait| wait.pair).collect();
        let losses = &self.report["losses"];
        assert_bracketed(tid, waited(self.locks(), tid), &truth, losses);
        self.assert_known(tid);
        let is_nap = |lock: &&Value| lock["class"] == "sleep";
        let (naps, slept_ns) = waited(self.locks().iter().filter(is_nap), tid);
        let [rounds, nap_ns] = ["rounds", "nap_ns"].map(|what| number(player, what));
        assert_all("naps", naps, number(losses, "futex_unseen"), rounds, player);
        assert_within("asleep", slept_ns, naps * nap_ns.., player);
    }

    /// A player is parked for nothing that is not known.
    fn assert_known(&self, tid: u64) {
        let is_parked = |lock: &&Value| {
            let rows = list(lock, "waiters").iter();
            let mut callers = rows.filter_map(|row| row["caller"].as_str());
            callers.any(|caller| caller.contains("park"))
        };
        let unknown = waited(self.locks().iter().filter(is_parked), tid);
        assert_eq!(unknown, (0, 0), "{:#?}", self.locks());
    }

    /// The row that has most of their waits. Others are of when an object was new to the tool.
    fn assert_lock(&self, players: &[&Value], class: &str, name: &str) {
        let tids: Vec<u64> = players.iter().map(|player| number(player, "tid")).collect();
        let is_it = |lock: &&Value| {
            let is_theirs = tids.iter().any(|tid| waited_for(lock, *tid));
            is_theirs && lock["class"] == class && text(lock, "name").starts_with(name)
        };
        let found = self.locks().iter().filter(is_it);
        let lock = found.max_by_key(|lock| number(lock, "contentions"));
        let lock = lock.unwrap_or_else(|| panic!("no {class} {name}: {:#}", self.report));
        assert_eq!(lock["for"], "others", "{lock:#}");
        if class == "future" {
            return;
        }
        let holders = list(lock, "holders");
        for holder in holders {
            assert!(tids.contains(&number(holder, "tid")), "{lock:#}");
        }
        let asleep = holders
            .iter()
            .map(|holder| number(&holder["meanwhile_ns"], "asleep"));
        assert_within("asleep", asleep.sum::<u64>(), 1.., lock);
        let has_owner = holders.iter().any(|holder| holder["known_as"] == "owner");
        assert!(has_owner || class != "java-lock", "{lock:#}");
    }

    /// Both threads slept before the tool was there, and all the time.
    fn assert_kept(&self) {
        let kept = self.results.iter().find(|result| result["kind"] == "kept");
        let kept = kept.expect("a result");
        let is_it = |lock: &&Value| waited_for(lock, number(kept, "tid"));
        let lock = self.locks().iter().find(is_it);
        let lock = lock.unwrap_or_else(|| panic!("{:#}", self.report));
        assert_eq!(
            (&lock["class"], &lock["open"]),
            (&"java-lock".into(), &1.into()),
            "{lock:#}"
        );
        assert!(
            text(lock, "name").starts_with("ReentrantLock 0x"),
            "{lock:#}"
        );
        let is_its = |wait: &&Value| wait["tid"] == kept["tid"];
        let now = list(&self.now, "waits").iter().find(is_its);
        let now = now.unwrap_or_else(|| panic!("{:#}", self.now));
        let lock_now = "of java.util.concurrent.locks.ReentrantLock";
        assert_eq!(
            (&now["class"], &now["lock"]),
            (&"Java lock".into(), &lock_now.into())
        );
        assert_eq!(now["holder"]["tid"], kept["holder"], "{now:#}");
        assert_eq!(
            number(only(lock, "holders"), "tid"),
            number(kept, "holder"),
            "{lock:#}"
        );
    }
}
