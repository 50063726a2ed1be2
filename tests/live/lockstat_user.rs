//! lockstat's account of programs' locks against that of the programs, which time their waits and know who made them.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::lockstat_played::{Played, assert_time_in, named, play, play_among, play_for};
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
    assert_eq!((count, joined), (played.rounds, played.rounds));
    assert_time_in("join", total_ns, played.asleep_ns());
}

pub(crate) fn assert_pthread(played: &[Played], locks: &[Value]) {
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
        if one.name == "lock_spun" {
            // The way into the kernel and out again is the waiter's CPU time, too, and what interrupts it.
            let others_ns = one.rounds * 100_000 + one.worked_ns / 50;
            let spun_ns = number(lock, "spin_ns");
            eprintln!("lock_spun: {spun_ns} of {} ns of CPU time", one.worked_ns);
            assert!(spun_ns + others_ns > one.worked_ns, "{lock:#}");
        }
    }
}

#[test]
fn pthread_locks_have_the_waits_that_the_program_timed_and_the_holders_that_it_knows() {
    let Some(_machine) = kernel::alone() else {
        return;
    };
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
    let (played, locks, _) = play(program, &["--strict"]);
    for one in &played {
        let lock = one.find(&locks);
        one.assert_counted(lock);
        one.assert_held(lock, "waker");
        if one.class == "rust" {
            let name = lock["name"].as_str().expect("a name");
            assert!(name.contains(&format!("rustlocks::{}", one.name)), "{name}");
        }
        assert_eq!(number(lock, "inode"), 0, "none is in a file: {lock:#}");
        let caller = lock["caller"].as_str().expect("a caller");
        assert!(caller.starts_with("rustlocks::"), "{caller}");
    }
    assert_eq!(played.len(), 8);
}

/// The futex that is a variable of this name, counted and held as the program says.
fn assert_futex(
    played: &Played,
    locks: &[Value],
    variable: &str,
    expected_ns: RangeInclusive<u64>,
) {
    let lock = named(locks, variable);
    played.assert_count(lock);
    assert_time_in(variable, number(lock, "total_ns"), expected_ns);
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
    let (played, locks, _) = play_among(program, &["--comm", "locks"]);
    for one in &played {
        match one.name.as_str() {
            "word_from" => {
                let [from_ns, to_ns] = one.asleep_parts_ns();
                assert_futex(one, &locks, "word_from", from_ns);
                assert_futex(one, &locks, "word_to", to_ns);
                one.assert_held(named(&locks, "word_to"), "waker");
            }
            "shared" => assert_shared(one, &locks),
            name => {
                // The second of futex_waitv's two was woken.
                let variable = if name == "word_waitv" {
                    "word_waitv+0x4"
                } else {
                    name
                };
                assert_futex(one, &locks, variable, one.asleep_ns());
                let lock = named(&locks, variable);
                one.assert_held(lock, "waker");
                assert!(
                    name != "word_counter" || lock["class"] == "unknown",
                    "{lock}"
                );
            }
        }
    }
    assert_eq!(played.len(), 6);
}

/// Two processes, three mappings, one lock: known by the file.
fn assert_shared(played: &Played, locks: &[Value]) {
    let lock = locks.iter().find(|lock| lock["name"] == "pool+0x1000");
    let lock = lock.unwrap_or_else(|| panic!("no lock in the file: {locks:#?}"));
    played.assert_counted(lock);
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
    let (played, locks, _) = play(compile(dir.path(), PTHREAD, &["-m32"]), &["--strict"]);
    for one in &played {
        match one.class.as_str() {
            // Its stacks have no names, and these futexes say nothing.
            "cond" | "sem" | "barrier" | "raced" => {}
            "join" => assert_joined(one, &locks),
            _ => {
                let lock = one.find(&locks);
                one.assert_counted(lock);
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
    let (_, locks, output) = play_for(compile(dir.path(), STUCK, &[]), "1");
    for (variable, caller) in [
        ("lock_stuck", "take_mutex"),
        ("lock_stuck_too", "take_read"),
    ] {
        let lock = named(&locks, variable);
        let total_ns = number(lock, "total_ns");
        assert_eq!(
            (number(lock, "contentions"), number(lock, "open")),
            (1, 1),
            "{lock:#}"
        );
        assert!(
            (1_000_000_000..1_500_000_000).contains(&total_ns),
            "{total_ns}"
        );
        assert_eq!(lock["caller"], caller, "{}", output.stderr);
    }
}
