//! `lockstat --now` on programs that are stuck, and know how; and on busy ones, which are not.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::compile;
use crate::containers;
use crate::kernel::require_live;
use crate::tool::Tool;
use crate::workload::{Workload, number};

const STUCK: &str = include_str!("../workloads/locks/stuck.c");

/// Runs `stuck`, until all its threads sleep for ever; gives what it knows of them, by thread.
fn stuck(dir: &Path, args: &[&str]) -> (Workload, HashMap<u64, Value>) {
    let program = compile(dir, "stuck", STUCK, &["-g"]);
    let mut command = Command::new(program);
    command.args(args);
    let (mut workload, _) = Workload::spawn("stuck", command);
    workload.go();
    let waits = workload.results();
    let by_tid = waits.into_iter().map(|wait| (number(&wait, "tid"), wait));
    (workload, by_tid.collect())
}

fn now(pid: u32) -> Value {
    let pid = pid.to_string();
    let output = Tool::start("lockstat", &["--now", "-j", "-p", &pid]).finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("a JSON object")
}

fn text(pid: u32) -> String {
    let pid = pid.to_string();
    Tool::start("lockstat", &["--now", "-p", &pid])
        .finish()
        .stdout
}

fn list(value: &Value) -> Vec<u64> {
    let list = value.as_array().expect("a list");
    list.iter().map(|n| n.as_u64().expect("a number")).collect()
}

/// Every wait is as the program knows it, and there is no other.
fn assert_waits(report: &Value, known: &HashMap<u64, Value>) {
    let waits = report["waits"].as_array().expect("waits");
    assert_eq!(waits.len(), known.len(), "{report}");
    for wait in waits {
        let truth = known.get(&number(wait, "tid"));
        let truth = truth.unwrap_or_else(|| panic!("{wait} of no waiter"));
        assert_eq!(wait["class"], truth["class"], "{wait}");
        assert_eq!(wait["holder"]["tid"], truth["holder"], "{wait}");
        if wait["class"] != "end of thread" {
            assert_eq!(wait["address"], truth["address"], "{wait}");
        }
        let user = wait["user"].as_array().expect("a stack");
        let has = |name: &str| user.iter().any(|frame| frame == name);
        assert!(wait["user_complete"] == true && (has("take_second") || has("lock_and_join")));
    }
}

/// The program's own knowledge: from any member, holder by holder, back to it.
fn circle(known: &HashMap<u64, Value>, from: u64) -> Vec<u64> {
    let mut circle = vec![from];
    loop {
        let next = number(&known[&circle[circle.len() - 1]], "holder");
        if next == from {
            return circle;
        }
        circle.push(next);
    }
}

/// A ring of locks, one thread after the other, with some more behind it.
fn assert_ring(kinds: &str, innocents: usize, word: &str) {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck(dir.path(), &["ring", kinds, &innocents.to_string()]);
    let report = now(workload.pid());
    assert_waits(&report, &known);
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{report}");
    let members = list(&deadlocks[0]["threads"]);
    assert_eq!(members.len(), kinds.len());
    assert_eq!(members, circle(&known, members[0]));
    let behind = list(&deadlocks[0]["behind"]);
    assert_eq!(behind.len(), innocents);
    assert!(
        behind
            .iter()
            .all(|tid| known.contains_key(tid) && !members.contains(tid))
    );
    assert_eq!(deadlocks[0]["timed"], kinds.contains('t'));
    assert_eq!(
        (&deadlocks[0]["kind"], &deadlocks[0]["certain"]),
        (&"circle".into(), &true.into())
    );

    let text = text(workload.pid());
    let line = format!(
        "\n{word}: {}",
        if members.len() == 1 {
            format!("1 thread of process {} waits for itself", workload.pid())
        } else {
            format!(
                "{} threads of process {} wait for each other",
                members.len(),
                workload.pid()
            )
        }
    );
    assert!(text.contains(&line), "{text}");
    // Each member's stack, from the kernel's leaf to the thread's root.
    assert_eq!(
        text.matches("\n    take_second\n").count(),
        members.len(),
        "{text}"
    );
    assert_eq!(
        text.matches("\n    clone3\n").count(),
        members.len(),
        "{text}"
    );
    workload.finish();
}

#[test]
fn a_thread_that_locks_its_own_mutex_again_is_a_circle_of_one() {
    assert_ring("m", 0, "DEADLOCK");
}

#[test]
fn two_threads_in_a_circle_and_innocent_ones_behind_them() {
    assert_ring("mm", 2, "DEADLOCK");
}

#[test]
fn three_threads_in_a_circle() {
    assert_ring("mmm", 3, "DEADLOCK");
}

#[test]
fn a_circle_through_a_rwlock_and_one_through_a_pi_mutex() {
    assert_ring("mw", 1, "DEADLOCK");
    assert_ring("mp", 1, "DEADLOCK");
}

#[test]
fn a_circle_that_a_time_out_will_end_is_called_that() {
    assert_ring("mt", 0, "DEADLOCK until a time-out");
}

#[test]
fn a_join_is_part_of_a_circle() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck(dir.path(), &["join"]);
    let report = now(workload.pid());
    assert_waits(&report, &known);
    let members = list(&report["deadlocks"][0]["threads"]);
    assert_eq!(members, circle(&known, members[0]));
    assert_eq!(members.len(), 2);
    workload.finish();
}

#[test]
fn a_lock_whose_holder_has_exited_is_abandoned() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck(dir.path(), &["gone"]);
    let report = now(workload.pid());
    assert_waits(&report, &known);
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{report}");
    assert_eq!(deadlocks[0]["kind"], "abandoned");
    assert_eq!(list(&deadlocks[0]["threads"]).len(), 2);
    assert!(report["waits"][0]["holder"]["kind"] == "gone");
    workload.finish();
}

#[test]
fn two_processes_over_a_shared_mutex() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck(dir.path(), &["shared"]);
    // Asked for one of them, the other one is found.
    let report = now(workload.pid());
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{report}");
    let members = list(&deadlocks[0]["threads"]);
    assert_eq!(members.len(), 2);
    assert_eq!(members, circle(&known, members[0]));
    let waits = report["waits"].as_array().expect("waits");
    let pids: Vec<u64> = waits.iter().map(|wait| number(wait, "pid")).collect();
    assert!(pids.len() == 2 && pids[0] != pids[1], "{report}");
    workload.finish();
}

#[test]
fn owners_are_known_by_the_ids_of_their_own_pid_namespace() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "stuck", STUCK, &["-g"]);
    let mut command = Command::new(program);
    command.args(["ring", "mm", "1"]);
    let script = "mount -t proc none /proc && exec \"$@\"";
    let (mut workload, tgid) = containers::enter(script, &command);
    workload.go();
    let known = workload.results();
    // Inside they are called 2 and 3; here they are not.
    assert!(known.iter().all(|wait| number(wait, "tid") < 10));
    let report = now(tgid);
    let deadlocks = report["deadlocks"].as_array().expect("deadlocks");
    assert_eq!(deadlocks.len(), 1, "{report}");
    assert_eq!(list(&deadlocks[0]["threads"]).len(), 2);
    assert_eq!(list(&deadlocks[0]["behind"]).len(), 1);
    workload.finish();
}

/// Two threads take two of Rust's mutexes, each the other's second; `spare`: one more thread, that may have anything.
const RUST: &str = r#"
use std::io::Read;
use std::sync::{Arc, Barrier, Mutex};
fn take_second(lock: &Mutex<u64>) -> u64 { *lock.lock().unwrap() }
fn main() {
    println!("ready {}", std::process::id());
    let mut go = [0; 3];
    std::io::stdin().read_exact(&mut go).unwrap();
    let locks = Arc::new([Mutex::new(1_u64), Mutex::new(2)]);
    let barrier = Arc::new(Barrier::new(2));
    let threads: Vec<_> = (0..2)
        .map(|i| {
            let (locks, barrier) = (Arc::clone(&locks), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let first = locks[i].lock().unwrap();
                barrier.wait();
                *first + take_second(&locks[1 - i])
            })
        })
        .collect();
    if std::env::args().nth(1).as_deref() == Some("spare") {
        std::thread::spawn(|| loop { std::thread::sleep(std::time::Duration::from_secs(3600)) });
    }
    println!("done");
    for thread in threads { thread.join().unwrap(); }
}
"#;

fn rust(dir: &Path, spare: &str) -> Workload {
    let source = dir.join("rust.rs");
    std::fs::write(&source, RUST).expect("a file");
    let program = dir.join("rust");
    crate::c_program::run(
        Command::new("rustc")
            .args(["--edition", "2021", "-O", "-g", "-o"])
            .args([&program, &source]),
    );
    let mut command = Command::new(program);
    command.arg(spare);
    let (mut workload, _) = Workload::spawn("rust", command);
    workload.go();
    workload.results();
    workload
}

/// Until so many threads of a process sleep in futex calls, by the kernel's word.
fn await_futexes(pid: u32, threads: usize) {
    let in_futex = |path: std::path::PathBuf| {
        std::fs::read_to_string(path.join("syscall")).is_ok_and(|call| call.starts_with("202 "))
    };
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
        if tasks.flatten().filter(|task| in_futex(task.path())).count() == threads {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_rust_program_of_which_every_thread_waits_is_dead_though_no_lock_names_a_holder() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let workload = rust(dir.path(), "");
    await_futexes(workload.pid(), 3);
    let report = now(workload.pid());
    let waits = report["waits"].as_array().expect("waits");
    let locks: Vec<&Value> = waits
        .iter()
        .filter(|wait| wait["class"] == "Rust mutex")
        .collect();
    assert_eq!(locks.len(), 2, "{report}");
    for lock in locks {
        assert_eq!(lock["holder"]["kind"], "unrecorded");
    }
    assert_eq!(report["deadlocks"][0]["kind"], "process", "{report}");
    // Both, and the one that joins them.
    assert_eq!(list(&report["deadlocks"][0]["threads"]).len(), 3);
    let text = text(workload.pid());
    assert!(
        text.contains("wait for locks, and no thread is left that could release one"),
        "{text}"
    );
    assert!(text.contains("whose holder is not recorded"), "{text}");
}

#[test]
fn a_rust_program_with_a_thread_left_is_not_called_dead() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let workload = rust(dir.path(), "spare");
    await_futexes(workload.pid(), 3);
    let report = now(workload.pid());
    assert_eq!(report["waiting"], 2, "{report}");
    assert_eq!(report["deadlocks"], serde_json::json!([]));
    let text = text(workload.pid());
    assert!(
        text.contains("1 thread behind Rust mutex") && text.contains("not recorded"),
        "{text}"
    );
}

/// Threads whose waits would look like circles if they were put together from different moments.
const BUSY: &str = r#"
#include <pthread.h>
static pthread_mutex_t locks[3] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static void *work(void *argument)
{
	for (unsigned long i = (long)argument;; i++) {
		pthread_mutex_lock(&locks[i % 3]);
		usleep(20);
		pthread_mutex_unlock(&locks[i % 3]);
	}
}
static void *alone(void *argument)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	for (;;) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
}
int main(int argc, char **argv)
{
	pthread_t thread;

	ready();
	for (long i = 0; i < 6; i++)
		pthread_create(&thread, NULL, argc > 1 ? alone : work, (void *)i);
	say("done\n");
	await_go();
	_exit(0);
}
"#;

#[test]
fn busy_programs_are_healthy() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "busy", BUSY, &[]);
    let start = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args);
        let (mut workload, _) = Workload::spawn("busy", command);
        workload.go();
        workload.results();
        workload
    };
    let contended = start(&[]);
    let mut waits = 0;
    for _ in 0..20 {
        let report = now(contended.pid());
        assert_eq!(report["deadlocks"], serde_json::json!([]), "{report}");
        waits += number(&report, "waiting") + number(&report, "passing");
    }
    assert!(
        waits > 0,
        "nobody waited at any of 20 looks: no test of anything"
    );
    contended.finish();
    let uncontended = start(&["alone"]);
    let text = text(uncontended.pid());
    assert!(text.contains(": no thread waits for a lock\n"), "{text}");
    assert!(!text.contains("DEADLOCK"));
    uncontended.finish();
}

/// A thread writes to a file from memory that nobody brings in: it sleeps with the inode's rwsem. Others want that too. A
/// second file is being appended to in peace.
const INODE: &str = r#"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
static int file;
static char *missing;
static int tids[3];
static void *write_it(void *argument)
{
	long which = (long)argument;

	__atomic_store_n(&tids[which], gettid(), __ATOMIC_SEQ_CST);
	if (which > 0) {
		char text[] = "x";
		pwrite(file, text, 1, 0);
	} else
		pwrite(file, missing, 4096, 0);
	return NULL;
}
/* Until the kernel says what the thread's state is. */
static void await_state(int which, char wanted)
{
	char path[64], text[256], *state;

	for (;;) {
		snprintf(path, sizeof(path), "/proc/%d/stat", __atomic_load_n(&tids[which], __ATOMIC_SEQ_CST));
		int stat = open(path, O_RDONLY);
		int length = read(stat, text, sizeof(text) - 1);

		close(stat);
		text[length > 0 ? length : 0] = 0;
		state = strrchr(text, ')');
		if (state && state[2] == wanted)
			return;
		usleep(1000);
	}
}
int main(int argc, char **argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero;
	struct uffd_msg message;
	pthread_t threads[3];
	int faults;

	ready();
	faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	file = open(argv[1], O_RDWR | O_CREAT, 0600);
	missing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (long)missing;
	range.range.len = 4096;
	if (faults < 0 || file < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
		return 7;
	pthread_create(&threads[0], NULL, write_it, (void *)0);
	/* The fault has come: the writer sleeps, and has the inode. */
	if (read(faults, &message, sizeof(message)) != sizeof(message))
		return 6;
	for (long i = 1; i < 3; i++) {
		pthread_create(&threads[i], NULL, write_it, (void *)i);
		await_state(i, 'D');
	}
	say("{\"holder\": %d, \"waiters\": [%d, %d]}\ndone\n", tids[0], tids[1], tids[2]);
	await_go();
	zero.range = range.range;
	zero.mode = 0;
	ioctl(faults, UFFDIO_ZEROPAGE, &zero);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
"#;

#[test]
fn a_kernel_lock_that_stands_still_names_its_owner() {
    if !require_live() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "inode", INODE, &[]);
    let mut command = Command::new(program);
    command.arg(dir.path().join("file"));
    let (mut workload, _) = Workload::spawn("inode", command);
    workload.go();
    let truth = &workload.results()[0];
    let report = now(workload.pid());
    let waits = report["waits"].as_array().expect("waits");
    assert_eq!(waits.len(), 2, "{report}");
    for wait in waits {
        assert_eq!(wait["class"], "kernel rwsem (write)", "{wait}");
        assert_eq!(wait["holder"]["tid"], truth["holder"]);
        assert_eq!(wait["holder"]["kind"], "thread");
        let state = wait["holder"]["state"].as_str().expect("a state");
        assert!(state.contains("handle_userfault"), "{state}");
        assert!(list(&truth["waiters"]).contains(&number(wait, "tid")));
    }
    let text = text(workload.pid());
    assert!(text.contains("\n2 threads behind inode (PID "), "{text}");
    workload.finish();
}
