//! lockstat's account of programs' locks against the log of the kernel's events, and the programs, which know who made them wait.

use std::path::Path;
use std::process::Command;

use oracle::Bracket;
use serde_json::Value;

use crate::lockstat_played::{
    Account, Played, account, account_among, address, named, play, waited, waited_for,
};
use crate::tool::Tool;
use crate::workload::{Workload, number};
use crate::{c_program, kernel};

/// What programs begin with: rounds of holding a lock until somebody sleeps on it.
const STAGE: &str = include_str!("../workloads/locks/stage.h");
pub(crate) const OTHER: &str = include_str!("../workloads/locks/other.c");
pub(crate) const PTHREAD: &str = include_str!("../workloads/locks/pthread.c");

pub(crate) fn compile(dir: &Path, source: &str, flags: &[&str]) -> Command {
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
    let variable = played.name.as_str();
    // Behind a mutex of 40 bytes, in a structure, it is known by its words: at 40, and without __g_refs at 32.
    let ends: &[&str] = match variable {
        "lock_cond" => &["+0x50", "+0x48"],
        _ => &[""],
    };
    assert!(
        ends.iter()
            .any(|end| name.ends_with(&format!(": {variable}{end}"))),
        "{name}: {variable}"
    );
    assert!(name.starts_with("locks."), "{name}");
}

/// Every thread is a lock of its own to those who wait for its end, and its own holder.
fn assert_joined(account: &Account, played: &Played) {
    let locks = account.locks().iter();
    let is_join = |lock: &&Value| lock["class"] == "join" && waited_for(lock, played.waiter);
    let joins: Vec<&Value> = locks.filter(is_join).collect();
    let mut joined = 0;
    for lock in &joins {
        let holders = lock["holders"].as_array().expect("holders");
        joined += holders.len() as u64;
        assert!(holders.iter().all(|h| h["known_as"] == "owner"), "{lock:#}");
    }
    account.assert_waits(played, &joins, |_| true);
    let waits: u64 = joins.iter().map(|lock| number(lock, "contentions")).sum();
    assert_eq!(joined, waits, "each for another thread");
}

/// Its waiters spin as long as the owner has a CPU.
fn assert_spun(account: &Account, played: &Played, lock: &Value) {
    let waits = account.waits_of(played.waiter);
    let truth: Bracket = waits.iter().map(|wait| wait.spun).collect();
    let spun_ns = number(lock, "spin_ns");
    eprintln!("{}: {spun_ns} ns spun; {truth:?}", played.name);
    assert!(
        (truth.least_ns..=truth.most_ns).contains(&spun_ns),
        "{}: {spun_ns}; {truth:?}: {lock:#}",
        played.name
    );
}

pub(crate) fn assert_pthread(account: &Account) {
    let locks = account.locks();
    for one in &account.played {
        match one.class.as_str() {
            "raced" => {
                let lock = named(locks, &one.name);
                assert_eq!(number(lock, "raced"), one.rounds, "{lock:#}");
                assert_eq!(number(lock, "contentions"), 0, "{lock:#}");
                continue;
            }
            "join" => {
                assert_joined(account, one);
                continue;
            }
            _ => {}
        }
        let lock = one.find(locks);
        account.assert_counted(one, lock);
        one.assert_held(lock, known_as(&one.name));
        assert_named(one, lock);
        if one.name == "lock_late" {
            assert_eq!(lock["gave_up"], lock["contentions"], "{}", one.name);
        } else {
            assert_eq!(lock["gave_up"], 0, "{}", one.name);
        }
        assert_spun(account, one, lock);
    }
}

#[test]
fn pthread_locks_have_the_waits_of_the_log_and_the_holders_that_the_program_knows() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let account = account(compile(dir.path(), PTHREAD, &[]), &["--strict"]);
    assert_pthread(&account);
    let complete = "user stacks complete for 100% of the time";
    let said = &account.output.stderr;
    assert!(said.contains(complete), "{said}");
    assert_eq!(
        named(account.locks(), "lock_normal")["caller"],
        "take_mutex",
        "outside glibc"
    );
}

/// What holds where clocks mean nothing, and where only the waker is known.
#[test]
fn waits_are_counted_exactly_and_their_makers_named_on_every_kernel() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    // Not strict: emulated CPUs are in each other's way, and events are lost, and counted.
    let (played, locks, output) = play(compile(dir.path(), PTHREAD, &[]), &[]);
    let mut missing = 0;
    for one in &played {
        match one.class.as_str() {
            "raced" => assert_eq!(number(named(&locks, &one.name), "raced"), one.rounds),
            // A lock for each thread that ends.
            "join" => {}
            _ => {
                let lock = one.find(&locks);
                let count = number(lock, "contentions");
                assert!(count > 0 && count <= one.rounds, "{}: {lock:#}", one.name);
                missing += one.rounds - count;
                assert_named(one, lock);
                let holders = lock["holders"].as_array().expect("holders").iter();
                // Once as owner, and once as waker: before 6.14 nobody is asked for the owner of who only spins.
                let mut tids: Vec<u64> = holders.map(|holder| number(holder, "tid")).collect();
                tids.dedup();
                // Nobody woke who gave up.
                assert!(
                    tids == [one.holder] || (one.name == "lock_late" && tids.is_empty()),
                    "{}: {lock:#}",
                    one.name
                );
            }
        }
    }
    assert_eq!(played.len(), 17);
    let report = output.report();
    let losses = report["losses"].as_object().expect("losses").values();
    let lost: u64 = losses.filter_map(Value::as_u64).sum();
    assert!(
        missing <= lost,
        "{missing} waits missing, {lost} events lost"
    );
}

#[test]
fn rusts_locks_and_parking_lots_are_known_by_their_functions() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let program = Command::new(Workload::program("rustlocks"));
    let account = account(program, &["--strict"]);
    for one in &account.played {
        let lock = one.find(account.locks());
        account.assert_counted(one, lock);
        one.assert_held(lock, "waker");
        if one.class == "rust" {
            let name = lock["name"].as_str().expect("a name");
            assert!(name.contains(&format!("rustlocks::{}", one.name)), "{name}");
        }
        assert_eq!(number(lock, "inode"), 0, "none is in a file: {lock:#}");
        let caller = lock["caller"].as_str().expect("a caller");
        assert!(caller.starts_with("rustlocks::"), "{caller}");
    }
    assert_eq!(account.played.len(), 8);
}

#[test]
fn every_futex_call_is_followed_and_a_requeue_splits_the_wait() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = compile(dir.path(), OTHER, &[]);
    command.arg(dir.path().join("pool"));
    let (program, _) = Workload::spawn("locks", command);
    // The child as well.
    let account = account_among(program, &["--comm", "locks"]);
    let locks = account.locks();
    for one in &account.played {
        match one.name.as_str() {
            "word_from" => assert_moved(&account, one),
            "shared" => assert_shared(&account, one),
            name => {
                // The second of futex_waitv's two was woken.
                let variable = if name == "word_waitv" {
                    "word_waitv+0x4"
                } else {
                    name
                };
                let lock = named(locks, variable);
                account.assert_counted(one, lock);
                one.assert_held(lock, "waker");
                assert!(
                    name != "word_counter" || lock["class"] == "unknown",
                    "{lock}"
                );
            }
        }
    }
    assert_eq!(account.played.len(), 6);
}

/// Waits that were moved to another futex: each has its part of the time.
fn assert_moved(account: &Account, played: &Played) {
    for variable in ["word_from", "word_to"] {
        let lock = named(account.locks(), variable);
        let is_on = |address| move |wait: &oracle::futex::Wait| wait.address == address;
        account.assert_waits(played, &[lock], is_on(address(lock)));
        let own = waited([lock], played.waiter).0;
        assert_eq!(number(lock, "contentions"), own, "nobody else: {lock:#}");
    }
    played.assert_held(named(account.locks(), "word_to"), "waker");
}

/// Two processes, three mappings, one lock: known by the file.
fn assert_shared(account: &Account, played: &Played) {
    let locks = account.locks();
    let lock = locks.iter().find(|lock| lock["name"] == "pool+0x1000");
    let lock = lock.unwrap_or_else(|| panic!("no lock in the file: {locks:#?}"));
    account.assert_counted(played, lock);
    played.assert_held(lock, "owner");
    assert_eq!(lock["pid"], 0, "no process's own");
    assert!(number(lock, "inode") > 0);
    let device = lock["device"].as_str().expect("a device");
    assert!(device.contains(':'), "{device}");
}

#[test]
fn a_32_bit_programs_locks_are_counted_and_held_as_others() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let account = account(compile(dir.path(), PTHREAD, &["-m32"]), &["--strict"]);
    for one in &account.played {
        match one.class.as_str() {
            // Its stacks have no names, and these futexes say nothing.
            "cond" | "sem" | "barrier" | "raced" => {}
            "join" => assert_joined(&account, one),
            _ => {
                let lock = one.find(account.locks());
                account.assert_counted(one, lock);
                one.assert_held(lock, known_as(&one.name));
                assert_named(one, lock);
            }
        }
    }
}

#[test]
fn goroutines_wait_for_a_mutex_and_threads_for_goroutines() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("mutex.go"), dir.path().join("locks"));
    std::fs::write(&source, include_str!("../workloads/locks/mutex.go")).expect("a file");
    let mut go = Command::new("go");
    c_program::run(go.arg("build").arg("-o").arg(&program).arg(&source));
    let (_, locks, _) = play(Command::new(program), &[]);
    let parked: u64 = locks
        .iter()
        .filter(|lock| lock["class"] == "park")
        .map(|lock| number(lock, "total_ns"))
        .sum();
    assert!(parked > 0, "{locks:#?}");
    // The runtime's own locks may be contended, too; nothing else is a lock.
    let others = locks.iter().filter(|lock| number(lock, "contentions") > 0);
    for lock in others {
        let class = lock["class"].as_str().expect("a class");
        assert!(matches!(class, "park" | "go"), "{lock:#}");
    }
}

/// Two threads wait for main, which waits for stdin: before, throughout and after the window.
const STUCK: &str = r#"
pthread_mutex_t lock_stuck = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t lock_stuck_too = PTHREAD_RWLOCK_INITIALIZER;

__attribute__((noinline)) static void *take_mutex(void *tid)
{
	*(volatile pid_t *)tid = syscall(SYS_gettid);
	pthread_mutex_lock(&lock_stuck);
	return NULL;
}

__attribute__((noinline)) static void *take_read(void *tid)
{
	*(volatile pid_t *)tid = syscall(SYS_gettid);
	pthread_rwlock_rdlock(&lock_stuck_too);
	return NULL;
}

int main(void)
{
	void *(*takers[2])(void *) = { take_mutex, take_read };
	volatile pid_t tids[2] = { 0, 0 };
	pthread_t threads[2];

	pthread_mutex_lock(&lock_stuck);
	pthread_rwlock_wrlock(&lock_stuck_too);
	for (int i = 0; i < 2; i++) {
		pthread_create(&threads[i], NULL, takers[i], (void *)&tids[i]);
		while (!tids[i])
			;
		await_sleep(tids[i]);
	}
	ready();
	say("done\n");
	await_go();
	return 0;
}
"#;

#[test]
fn waits_that_neither_begin_nor_end_in_the_window_count_for_all_of_it() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let command = compile(dir.path(), STUCK, &[]);
    let (mut program, pid) = Workload::spawn("locks", command);
    let args = ["-U", "-j", "--class", "all", "-p", &pid.to_string(), "1"];
    let output = Tool::start("lockstat", &args).finish();
    program.go();
    program.results();
    program.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report = output.report();
    let locks = report["locks"].as_array().expect("locks");
    for (variable, caller) in [
        ("lock_stuck", "take_mutex"),
        ("lock_stuck_too", "take_read"),
    ] {
        let lock = named(locks, variable);
        assert_eq!(
            (number(lock, "contentions"), number(lock, "open")),
            (1, 1),
            "{lock:#}"
        );
        assert_eq!(lock["total_ns"], report["duration_ns"], "{lock:#}");
        assert_eq!(lock["caller"], caller, "{}", output.stderr);
    }
}
