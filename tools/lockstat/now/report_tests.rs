//! Snapshots of made-up threads.

use std::collections::HashMap;
use std::time::Duration;

use profile::frame::{Frame, FrameKind};
use profile::losses::Losses;

use super::*;
use crate::lockstat::futex::Class;
use crate::lockstat::now::thread::{Stack, Threads};
use crate::narrow::{COMMS, MANY, PATHS, assert_narrow};

/// Threads of which each waits for the next one, and the last for nothing, or for the first.
fn chain(comm: &str, path: &str, length: usize, is_circle: bool) -> Snapshot {
    let mut threads = Threads::default();
    threads.all = (0..length).map(|_| Thread::made_up(comm)).collect();
    let waits = (0..length - usize::from(!is_circle)).map(|waiter| Wait {
        waiter,
        kind: Waited::Program(Class::RwlockWrite),
        lock: Identity::Private {
            space: 1,
            address: waiter as u64,
        },
        name: path.into(),
        holder: Holder::Thread((waiter + 1) % length),
        timed: true,
        private: true,
    });
    let frame = |kind| Frame {
        name: path.repeat(2).into(),
        kind,
        inlined: false,
        module: None,
        address: 1,
        line: None,
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
        wait.kind = Waited::Program(Class::ParkingLot);
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
fn a_short_sentence_is_one_line() {
    let found = text(&chain("a", "queue", 2, false));
    let behind = "\n1 thread behind a (PID 4194304, TID 4194303), on a CPU\n";
    assert!(found.contains(behind), "{found}");
    assert!(
        found.contains("  rwlock (write) queue: a (PID 4194304, TID 4194303)\n"),
        "{found}"
    );
}
