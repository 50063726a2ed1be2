//! lockstat on locks between processes, in files, and on numbers in locks that mean no thread, or one of another PID namespace.

use std::process::Command;

use serde_json::json;

use crate::beside::containers;
use crate::beside::lockstat_now::{STUCK, Stuck, now, stuck, told};
use crate::beside::lockstat_user;
use crate::prelude::*;

/// Two processes over a mutex, in a PID namespace each; the holder's number is such that it means the waiter there, or nobody.
const NUMBERS: [&str; 2] = ["apart 1", "apart 2"];

#[test]
fn two_processes_over_shared_locks() {
    let _machine = Machine::beside();
    let program = stuck("-g");
    for args in ["shared mm", "shared WW"] {
        let stuck = Stuck::in_program(&program, args);
        // Asked for one of them, the other one is found.
        let report = stuck.now();
        stuck.assert_circle(only(&report, "deadlocks"), 2);
        let [one, other] = list(&report, "waits") else {
            panic!("two waits: {report}");
        };
        assert_ne!(one["pid"], other["pid"], "{report}");
        for wait in [one, other] {
            stuck.assert_known(wait, &["class"]);
            let address = text(&stuck.known[&number(wait, "tid")], "address");
            let lock = text(wait, "lock");
            assert!(lock.ends_with(&format!(" {address}")), "{wait}");
        }
        stuck.workload.finish();
    }
}

#[test]
fn a_number_from_another_pid_namespace_makes_no_deadlock() {
    let _machine = Machine::beside();
    let program = stuck("-g");
    for args in NUMBERS {
        let mut workload = program.start(args);
        let results = workload.work();
        let [truth] = &results[..] else {
            panic!("one waiter: {results:?}");
        };
        let report = now(id(truth, "tid"));
        assert_eq!(report["deadlocks"], json!([]), "{report}");
        let wait = only(&report, "waits");
        assert_eq!(wait["tid"], truth["tid"]);
        assert_eq!(wait["class"], "mutex", "{report}");
        assert_eq!(wait["holder"]["kind"], "unrecorded", "{report}");
        let text = told(id(truth, "tid"));
        assert!(!text.contains("DEADLOCK"), "{text}");
        assert!(text.contains("1 thread behind mutex"), "{text}");
        workload.finish();
    }
}

#[test]
fn who_holds_a_lock_across_pid_namespaces_is_known_by_releasing_it() {
    let _machine = Machine::beside();
    // Others beside this test are called stuck.
    let program = Program::c("apartheld", STUCK, "-g");
    for (args, is_released) in NUMBERS
        .iter()
        .flat_map(|args| [(args, true), (args, false)])
    {
        let mut workload = program.start(*args);
        let tool = Tool::attached("lockstat", "-U -j --comm apartheld");
        workload.go();
        let waiter = number(&workload.results()[0], "tid");
        let output = if is_released {
            workload.finish();
            tool.end()
        } else {
            let output = tool.end();
            workload.finish();
            output
        };
        let report = output.last_report();
        // Beside barriers.
        let locks = list(&report, "locks").iter();
        let mutexes: Vec<&Value> = locks.filter(|lock| lock["class"] == "mutex").collect();
        let [lock] = mutexes[..] else {
            panic!("not one mutex: {report:#}")
        };
        assert_eq!(number(only(lock, "waiters"), "tid"), waiter);
        let holders = list(lock, "holders");
        assert_eq!(holders.len(), usize::from(is_released), "{lock}");
        for holder in holders {
            assert_eq!(holder["known_as"], "waker", "{lock}");
            assert_ne!(number(holder, "tid"), waiter, "{lock}");
        }
    }
}

/// musl's own gcc, in other words.
const MUSL: &str = "-static -specs /usr/lib/x86_64-linux-musl/musl-gcc.specs";

/// Its locks name nobody, and have other words than glibc's.
#[test]
fn threads_that_are_stuck_in_musls_locks_wait_for_these() {
    let _machine = Machine::beside();
    let program = stuck(MUSL);
    let stuck = Stuck::in_program(&program, "ring mm 1");
    let report = stuck.now();
    assert_eq!(list(&report, "waits").len(), 3, "{report}");
    for wait in list(&report, "waits") {
        assert_eq!(wait["class"], "mutex", "{wait}");
        stuck.assert_known(wait, &["address"]);
        assert_eq!(wait["holder"]["kind"], "unrecorded", "{wait}");
    }
    stuck.workload.finish();
}

/// Twenty threads wait for one mutex; musl says EBUSY in it, which is 16.
const CROWD: &str = r#"
#define THREADS 20
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile pid_t tids[THREADS];
static int passed;

static void *pass(void *tid)
{
	*(volatile pid_t *)tid = syscall(SYS_gettid);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	__atomic_add_fetch(&passed, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	ready();
	pthread_mutex_lock(&lock);
	for (int i = 0; i < THREADS; i++) {
		pthread_create(&thread, NULL, pass, (void *)&tids[i]);
		while (!tids[i])
			sched_yield();
		await_sleep(tids[i]);
	}
	pthread_mutex_unlock(&lock);
	while (__atomic_load_n(&passed, __ATOMIC_SEQ_CST) < THREADS)
		sched_yield();
	return finished();
}
"#;

#[test]
fn an_error_in_musls_lock_is_no_thread() {
    let _machine = Machine::beside();
    let source = format!("{}{CROWD}", lockstat_user::STAGE);
    let program = Program::c("crowd", &source, MUSL);
    let script = "mount -t proc none /proc && exec \"$@\"";
    let mut workload = containers::enter(script, &program.command(""));
    let args = format!("-U -j --class all -p {}", workload.pid());
    let tool = Tool::attached("lockstat", args);
    workload.work();
    let report = tool.end().last_report();
    workload.finish();
    let mut locks = list(&report, "locks").iter();
    let crowd = locks.find(|lock| number(lock, "contentions") >= 20);
    let crowd = crowd.expect("a lock that all wait for");
    assert!(!list(crowd, "holders").is_empty(), "{crowd}");
    for holder in list(crowd, "holders") {
        assert_eq!(holder["known_as"], "waker", "{crowd}");
    }
}

/// As in two containers, which have /dev/shm of their own.
#[test]
fn files_of_one_number_on_two_devices_are_two_locks() {
    let _machine = Machine::beside();
    let program = lockstat_user::others("apart");
    let contained = || {
        let script = "mount -t tmpfs none /mnt && exec \"$1\" /mnt/pool";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script, "sh", program.text()]);
        Workload::spawn("apart", unshare)
    };
    let mut both = [contained(), contained()];
    let tool = Tool::attached("lockstat", "-U -j --class all --comm apart");
    both.iter_mut().for_each(Workload::go);
    both.iter_mut().for_each(|one| drop(one.results()));
    let report = tool.report();
    both.into_iter().for_each(Workload::finish);
    let locks = list(&report, "locks").iter();
    let pools: Vec<&Value> = locks.filter(|lock| lock["name"] == "pool+0x1000").collect();
    let [one, other] = pools[..] else {
        panic!("not two locks in files: {pools:#?}")
    };
    assert_eq!(one["inode"], other["inode"], "file systems alike");
    assert_ne!(one["device"], other["device"]);
    for pool in pools {
        assert_eq!(pool["contentions"], 1);
    }
}
