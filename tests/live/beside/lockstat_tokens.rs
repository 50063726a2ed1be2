//! lockstat's account of tokens of make's job server, from Debian's make as it is.

use std::fs;
use std::path::Path;

use crate::found::unended;
use crate::prelude::*;

/// Two jobs at a time, and a make of its own for each directory: `slow` has one token until `quick` has begun its first job, which
/// says who its make is, and that one sleeps, for want of a token. The job ends when the second one has begun, with the token of `slow`.
const WHOLE: &str = "all: slow quick\nslow quick:\n\t$(MAKE) -C $@\n.PHONY: all slow quick\n";
const SLOW: &str = "all:\n\tuntil [ -e ../first ] && grep -q '^State:.S' /proc/$$(cat ../first)/status; do sleep 0.05; done\n";
const QUICK: &str = "all: 1 2\n1:\n\techo $$PPID > ../make; mv ../make ../first; until [ -e ../second ]; do sleep 0.05; done\n\
    2:\n\ttouch ../second\n";

/// One job more than may run. None ends before make sleeps: for want of a token, while there are two.
const ALONE: &str = "all: 1 2 3\n1 2 3:\n\tuntil grep -q '^State:.S' /proc/$$PPID/status; do sleep 0.05; done; sleep 0.2\n\
    .PHONY: all 1 2 3\n";

/// The report of lockstat about make, two jobs at a time, and of those that it starts. Others run makes, too.
fn made(dir: &Path) -> Value {
    let mut lockstat = Tool::command("lockstat", "-U -j -- make -s -j2 -C");
    // That of whoever runs the tests has a job server, too.
    lockstat.env_remove("MAKEFLAGS").env_remove("MFLAGS");
    lockstat.arg(dir);
    let report = Tool::spawn("lockstat", lockstat).finish().ok().report();
    unended(&report);
    report
}

#[test]
fn a_job_that_waits_for_another_makes_token_is_seen_with_who_gave_it() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in [("slow", SLOW), ("quick", QUICK)] {
        let below = dir.path().join(name);
        fs::create_dir(&below).expect("a directory");
        fs::write(below.join("Makefile"), text).expect("a file");
    }
    fs::write(dir.path().join("Makefile"), WHOLE).expect("a file");
    let report = made(dir.path());
    let lock = only(&report, "locks");
    assert_eq!(
        (&lock["class"], &lock["for"]),
        (&"jobserver".into(), &"others".into())
    );
    let waiter = only(lock, "waiters");
    let holder = only(lock, "holders");
    assert_eq!(holder["known_as"], "waker");
    assert_eq!(
        (&waiter["comm"], &holder["comm"]),
        (&"make".into(), &"make".into())
    );
    assert_ne!(waiter["pid"], holder["pid"], "{lock:#}");
}

/// Nobody else gives one: it waits for its own children.
#[test]
fn make_by_itself_waits_for_no_token() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("Makefile"), ALONE).expect("a file");
    let report = made(dir.path());
    assert!(list(&report, "locks").is_empty(), "{report:#}");
    let idle = only(&report, "left_out");
    assert_eq!(idle["class"], "jobserver", "{report:#}");
}
