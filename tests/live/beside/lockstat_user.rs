//! lockstat's account of programs' locks against the log of the kernel's events, and the programs, which know who made them wait.

use std::fs;
use std::process::Command;

use oracle::Bracket;
use oracle::futex::Wait;

use crate::c_program::run;
use crate::found::unended;
use crate::lockstat_played::{
    Account, Played, account, account_among, named, play, waited, waited_for,
};
use crate::prelude::*;

/// What programs begin with: rounds of holding a lock until somebody sleeps on it.
pub(crate) const STAGE: &str = include_str!("../../workloads/locks/stage.h");
pub(crate) const OTHER: &str = include_str!("../../workloads/locks/other.c");
pub(crate) const PTHREAD: &str = include_str!("../../workloads/locks/pthread.c");

/// A program with locks, which are called `locks.…`.
pub(crate) fn locks(source: &str, flags: &str) -> Program {
    let source = format!("{STAGE}{source}");
    Program::c("locks", &source, format!("-pthread {flags}"))
}

/// A program of futex calls, by a name of the test's own: others run it, too.
pub(crate) fn others(name: &str) -> Program {
    Program::c(name, &format!("{STAGE}{OTHER}"), "-pthread")
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
    let (name, variable) = (text(lock, "name"), &played.name);
    // Behind a mutex, in a structure, it is known by its words: at 40, and without __g_refs at 32.
    let mutex = size_of::<libc::pthread_mutex_t>();
    let ends = match variable.as_str() {
        "lock_cond" => [mutex + 40, mutex + 32].map(|at| format!("+{at:#x}")),
        _ => [String::new(), String::new()],
    };
    let is_end = |end: &String| name.ends_with(&format!(": {variable}{end}"));
    assert!(ends.iter().any(is_end), "{name}: {variable}");
    assert!(name.starts_with("locks."), "{name}");
}

/// Every thread is a lock of its own to those who wait for its end, and its own holder.
fn assert_joined(account: &Account, played: &Played) {
    let locks = account.locks().iter();
    let is_join = |lock: &&Value| lock["class"] == "join" && waited_for(lock, played.waiter);
    let joins: Vec<&Value> = locks.filter(is_join).collect();
    let holders: Vec<&Value> = joins
        .iter()
        .flat_map(|lock| list(lock, "holders"))
        .collect();
    assert!(
        holders.iter().all(|h| h["known_as"] == "owner"),
        "{joins:#?}"
    );
    account.assert_waits(played, &joins, |_| true);
    let waits = sum(joins, "contentions");
    assert_eq!(holders.len() as u64, waits, "each for another thread");
}

/// Its waiters spin as long as the owner has a CPU.
fn assert_spun(account: &Account, played: &Played, lock: &Value) {
    let waits = account.waits_of(played.waiter);
    let truth: Bracket = waits.iter().map(|wait| wait.spun).collect();
    let (spun_ns, bounds) = (number(lock, "spin_ns"), truth.least_ns..=truth.most_ns);
    assert_within(format!("{} spun", played.name), spun_ns, bounds, lock);
}

pub(crate) fn assert_pthread(account: &Account) {
    let locks = account.locks();
    for one in &account.played {
        match one.class.as_str() {
            "raced" => {
                let lock = named(locks, &one.name);
                assert_eq!(number(lock, "raced"), one.rounds, "{lock:#}");
                assert_eq!(number(lock, "contentions"), 0, "{lock:#}");
            }
            "join" => assert_joined(account, one),
            _ => {
                let lock = one.find(locks);
                account.assert_counted(one, lock);
                one.assert_held(lock, known_as(&one.name));
                assert_named(one, lock);
                let gave_up = match one.name.as_str() {
                    "lock_late" => number(lock, "contentions"),
                    _ => 0,
                };
                assert_eq!(lock["gave_up"], gave_up, "{}", one.name);
                assert_spun(account, one, lock);
            }
        }
    }
    let caller = &named(locks, "lock_normal")["caller"];
    assert_eq!(caller, "take_mutex", "outside glibc");
}

#[test]
fn pthread_locks_have_the_waits_of_the_log_and_the_holders_that_the_program_knows() {
    let _machine = Machine::beside();
    let account = account(locks(PTHREAD, "").start(""), "-v");
    unended(&account.report);
    assert_pthread(&account);
    let complete = "user stacks complete for 100% of the time";
    account.output.assert_says(complete);
}

/// What holds where clocks mean nothing, and where only the waker is known.
#[test]
fn waits_are_counted_exactly_and_their_makers_named_on_every_kernel() {
    let _machine = Machine::beside();
    // Not strict: emulated CPUs are in each other's way, and events are lost, and counted.
    let (played, report) = play(locks(PTHREAD, "").start(""));
    let locks = list(&report, "locks");
    let mut missing = 0;
    for one in &played {
        match one.class.as_str() {
            "raced" => assert_eq!(number(named(locks, &one.name), "raced"), one.rounds),
            // A lock for each thread that ends.
            "join" => {}
            _ => {
                let lock = one.find(locks);
                let count = number(lock, "contentions");
                assert_within(&one.name, count, 1..=one.rounds, lock);
                missing += one.rounds - count;
                assert_named(one, lock);
                let holders = list(lock, "holders").iter();
                // Once as owner, and once as waker: before 6.14 nobody is asked for the owner of who only spins.
                let mut tids: Vec<u64> = holders.map(|holder| number(holder, "tid")).collect();
                tids.dedup();
                // Nobody woke who gave up.
                let is_nobodys = one.name == "lock_late" && tids.is_empty();
                assert!(tids == [one.holder] || is_nobodys, "{}: {lock:#}", one.name);
            }
        }
    }
    assert_eq!(played.len(), 17);
    let losses = report["losses"].as_object().expect("losses").values();
    let lost: u64 = losses.filter_map(Value::as_u64).sum();
    assert_within("waits missing", missing, ..=lost, "events lost");
}

#[test]
fn rusts_locks_and_parking_lots_are_known_by_their_functions() {
    let _machine = Machine::beside();
    let account = account(Workload::start("rustlocks", ""), "");
    unended(&account.report);
    let mut begins = Vec::new();
    for one in &account.played {
        let lock = one.find(account.locks());
        if ["STD_READ", "STD_WRITE"].contains(&&*one.name) {
            begins.push(text(lock, "name").rsplit_once(&*one.name).map(|(_, at)| at));
        }
        account.assert_counted(one, lock);
        one.assert_held(lock, "waker");
        if one.class == "rust" {
            let name = text(lock, "name");
            assert!(name.contains(&format!("rustlocks::{}", one.name)), "{name}");
        }
        assert_eq!(number(lock, "inode"), 0, "none is in a file: {lock:#}");
        assert!(text(lock, "caller").starts_with("rustlocks::"), "{lock:#}");
    }
    assert_eq!(account.played.len(), 8);
    // Readers wait for a lock's first word, writers for its second.
    assert_eq!(begins.len(), 2);
    assert_eq!(begins[0], begins[1]);
}

#[test]
fn every_futex_call_is_followed_and_a_requeue_splits_the_wait() {
    let _machine = Machine::beside();
    let program = others("futexes");
    let workload = program.start([program.dir().join("pool")]);
    // The child as well.
    let account = account_among(workload, "--comm futexes");
    for one in &account.played {
        match one.name.as_str() {
            "word_from" => assert_moved(&account, one),
            "shared" => assert_shared(&account, one),
            name => {
                let variable = match name {
                    // The second of futex_waitv's two was woken.
                    "word_waitv" => "word_waitv+0x4",
                    same => same,
                };
                let lock = named(account.locks(), variable);
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
        let address = address(lock);
        account.assert_waits(played, &[lock], |wait: &Wait| wait.address == address);
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
    assert!(text(lock, "device").contains(':'), "{lock}");
}

#[test]
fn a_32_bit_programs_locks_are_counted_and_held_as_others() {
    let _machine = Machine::beside();
    let account = account(locks(PTHREAD, "-m32").start(""), "");
    unended(&account.report);
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
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("mutex.go"), dir.path().join("locks"));
    fs::write(&source, include_str!("../../workloads/locks/mutex.go")).expect("a file");
    run(Command::new("go")
        .args(["build", "-o"])
        .args([&program, &source]));
    let (_, report) = play(Workload::spawn("locks", Command::new(program)));
    assert_eq!(only(&report, "async_runtimes")["runtime"], "go");
    let locks = list(&report, "locks").iter();
    let parked = locks.clone().filter(|lock| lock["class"] == "park");
    assert!(sum(parked, "total_ns") > 0, "{report:#}");
    // The runtime's own locks may be contended, too; nothing else is a lock.
    for lock in locks.filter(|lock| number(lock, "contentions") > 0) {
        assert!(matches!(text(lock, "class"), "park" | "go"), "{lock:#}");
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
	return finished();
}
"#;

#[test]
fn waits_that_neither_begin_nor_end_in_the_window_count_for_all_of_it() {
    let _machine = Machine::beside();
    let program = locks(STUCK, "");
    let report = over_a_rest("-U -j --class all", &program, "1").report();
    for (variable, caller) in [
        ("lock_stuck", "take_mutex"),
        ("lock_stuck_too", "take_read"),
    ] {
        let lock = named(list(&report, "locks"), variable);
        let counts = (number(lock, "contentions"), number(lock, "open"));
        assert_eq!(counts, (1, 1), "{lock:#}");
        assert_eq!(lock["total_ns"], report["duration_ns"], "{lock:#}");
        assert_eq!(lock["caller"], caller, "{report:#}");
    }
}

/// Runs lockstat while a program waits for the word to go on.
pub(crate) fn over_a_rest(options: &str, program: &Program, window: &str) -> Output {
    let mut program = program.start("");
    let args = format!("{options} -p {} {window}", program.pid());
    let output = Tool::run("lockstat", args).ok();
    program.work();
    program.finish();
    output
}
