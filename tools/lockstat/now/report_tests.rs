//! Snapshots of made-up threads.

use std::collections::HashMap;
use std::time::Duration;

use budget::cost::Cost;
use profile::frame::{Frame, FrameKind};
use profile::losses::Losses;
use serde_json::json;

use super::*;
use crate::lockstat::futex::Class as FutexClass;
use crate::lockstat::now::json::object;
use crate::lockstat::now::lock::Told;
use crate::lockstat::now::thread::{Stack, Threads};
use crate::lockstat::postgres::Class;
use crate::made_up::frame;
use crate::narrow::{COMMS, MANY, PATHS, assert_narrow};

/// Threads of which each waits for the next one, and the last for nothing, or for the first.
fn chain(comm: &str, path: &str, length: usize, is_circle: bool) -> Snapshot {
    let mut threads = Threads::default();
    threads.all = (0..length).map(|_| Thread::made_up(comm)).collect();
    let waits = (0..length - usize::from(!is_circle)).map(|waiter| Wait {
        waiter,
        kind: Waited::Program(FutexClass::RwlockWrite),
        lock: Identity::Private {
            space: 1,
            address: waiter as u64,
        },
        name: path.into(),
        holder: Holder::Thread((waiter + 1) % length),
        timed: true,
        private: true,
        is_over: false,
        told: Told::default(),
    });
    let frame = |kind| Frame {
        kind,
        ..frame(&path.repeat(2))
    };
    let stack = Stack {
        user: [frame(FrameKind::User)].into(),
        user_end: Some(StackEnd::Depth),
        kernel: [frame(FrameKind::Kernel)].into(),
    };
    Snapshot {
        waits: waits.collect(),
        threads,
        passing: MANY,
        stacks: (0..length)
            .map(|thread| (thread, stack.clone()))
            .collect::<HashMap<_, _>>(),
        apart: Duration::from_secs(1),
        losses: Losses::default(),
        unnamed: String::new(),
        said: HashMap::new(),
        statements: HashMap::new(),
        is_silent: false,
    }
}

fn text(snapshot: &Snapshot) -> String {
    let options = Options {
        top: 20,
        stacks: true,
        color: false,
    };
    let mut out = Vec::new();
    write(snapshot, &Verdict::of(snapshot), &options, &mut out).expect("a vector");
    String::from_utf8(out).expect("text")
}

#[test]
fn no_line_is_too_long_whatever_the_names_are() {
    for (comm, path) in COMMS.iter().flat_map(|comm| PATHS.map(|path| (comm, path))) {
        for (length, is_circle) in [(2, true), (40, true), (2, false), (40, false)] {
            let found = text(&chain(comm, path, length, is_circle));
            assert_narrow(&found);
            assert_eq!(found.contains("DEADLOCK"), is_circle, "{found}");
        }
    }
}

#[test]
fn waiters_for_locks_that_nobody_tells_apart_are_together() {
    let mut snapshot = chain("a", "", 9, false);
    snapshot.threads.all[0].space = 2;
    for wait in &mut snapshot.waits {
        wait.kind = Waited::Program(FutexClass::ParkingLot);
        wait.holder = Holder::Unrecorded;
        wait.lock = Identity::Hidden {
            waiter: wait.waiter,
            space: snapshot.threads.all[wait.waiter].space,
        };
    }
    let found = text(&snapshot);
    let behind = |who: &str| {
        let lock = format!("{who} behind parking_lot lock");
        found.lines().find_map(|line| line.strip_prefix(&*lock))
    };
    let together = behind("7 threads").expect(&found);
    assert!(together.starts_with(" (one or several), whose"), "{found}");
    assert!(behind("1 thread").is_some_and(|rest| rest.starts_with(", whose")));
}

#[test]
fn a_servers_waits_say_since_when_and_behind_whom() {
    let mut snapshot = chain("postgres", "transactionid 7", 3, false);
    for wait in &mut snapshot.waits {
        wait.kind = Waited::Server(Class::Lock);
        wait.told.since_ns = Some(2_000_000_000);
    }
    snapshot.waits[0].told.also = vec![2];
    snapshot.threads.all[2].phase = Phase::Asleep;
    snapshot.said.insert(2, "client ClientRead\u{1b}".into());
    let found = text(&snapshot);
    let has = |part: &str| assert!(found.contains(part), "{found}");
    has("behind postgres (PID 4194304, TID 4194303), asleep (client\n  ClientRead\\x1b)");
    has("PostgreSQL lock transactionid 7, and behind postgres (PID 4194304, TID");
    has("4194303): postgres (PID 4194304, TID 4194303) for 2.00 s");
    // Nobody else knows what the server's memory does not say.
    snapshot.waits[1].holder = Holder::Unrecorded;
    snapshot.waits[1].kind = Waited::Server(Class::Lwlock);
    assert!(!text(&snapshot).contains("pg_blocking_pids"));
    snapshot.waits[1].kind = Waited::Server(Class::Lock);
    assert!(text(&snapshot).contains("SELECT pg_blocking_pids(0)"));
    snapshot.is_silent = true;
    assert!(text(&snapshot).contains("before 14 the server does not"));
}

#[test]
fn a_short_sentence_is_one_line() {
    let found = text(&chain("a", "queue", 2, false));
    let behind = "\n1 thread behind a (PID 4194304, TID 4194303), on a CPU\n";
    assert!(found.contains(behind), "{found}");
    assert!(
        found.contains("  rwlock (write) queue: a (PID 4194304, TID 4194303)\n"),
        "{found}"
    );
}

#[test]
fn a_process_that_holds_a_lock_is_told_without_a_thread() {
    let mut snapshot = chain("a", "queue", 2, false);
    snapshot.waits[0].holder = Holder::Process(1);
    let told = object(&snapshot, &Verdict::of(&snapshot), &Cost::default());
    let process = json!({"kind": "process", "comm": "a", "pid": 4_194_304});
    assert_eq!(told["waits"][0]["holder"], process, "{told}");
}
