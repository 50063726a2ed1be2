//! lockstat on locks between processes, in files, and on numbers in locks that mean no thread, or one of another PID namespace.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::compile;
use crate::containers;
use crate::kernel::beside;
use crate::lockstat_now::{STUCK, circle, list, now, stuck, stuck_as, text};
use crate::lockstat_user::{self, OTHER};
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

/// Two processes over a mutex, in a PID namespace each; the holder's number is such that it means the waiter there, or nobody.
const NUMBERS: [&str; 2] = ["1", "2"];

fn apart(dir: &Path, number: &str) -> Workload {
    let mut command = Command::new(compile(dir, "stuck", STUCK, &["-g"]));
    command.args(["apart", number]);
    Workload::spawn("stuck", command).0
}

fn report(output: &Output) -> Value {
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(output.stdout.lines().last().expect("a report")).expect("JSON")
}

#[test]
fn two_processes_over_shared_locks() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for kinds in ["mm", "WW"] {
        let (workload, known) = stuck(dir.path(), &["shared", kinds]);
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
        for wait in waits {
            let truth = &known[&number(wait, "tid")];
            assert_eq!(wait["class"], truth["class"], "{wait}");
            let lock = wait["lock"].as_str().expect("a name");
            let address = truth["address"].as_str().expect("an address");
            assert!(lock.ends_with(&format!(" {address}")), "{wait}");
        }
        workload.finish();
    }
}

#[test]
fn a_number_from_another_pid_namespace_makes_no_deadlock() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for holder in NUMBERS {
        let mut workload = apart(dir.path(), holder);
        workload.go();
        let results = workload.results();
        let [truth] = &results[..] else {
            panic!("one waiter: {results:?}");
        };
        let pid = u32::try_from(number(truth, "tid")).expect("a number");
        let report = now(pid);
        assert_eq!(report["deadlocks"], serde_json::json!([]), "{report}");
        let [wait] = &report["waits"].as_array().expect("waits")[..] else {
            panic!("one wait: {report}");
        };
        assert_eq!(wait["tid"], truth["tid"]);
        assert_eq!(wait["class"], "mutex", "{report}");
        assert_eq!(wait["holder"]["kind"], "unrecorded", "{report}");
        let text = text(pid);
        assert!(!text.contains("DEADLOCK"), "{text}");
        assert!(text.contains("1 thread behind mutex"), "{text}");
        workload.finish();
    }
}

#[test]
fn who_holds_a_lock_across_pid_namespaces_is_known_by_releasing_it() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for holder in NUMBERS {
        for is_released in [true, false] {
            let mut workload = apart(dir.path(), holder);
            let args = ["-U", "-j", "--comm", "stuck"];
            let tool = Tool::start("lockstat", &args);
            tool.wait_attached();
            workload.go();
            let waiter = number(&workload.results()[0], "tid");
            let output = if is_released {
                workload.finish();
                tool.interrupt();
                tool.finish()
            } else {
                tool.interrupt();
                let output = tool.finish();
                workload.finish();
                output
            };
            let report = report(&output);
            let [lock] = &report["locks"].as_array().expect("locks")[..] else {
                panic!("one lock: {report}");
            };
            let waiters = lock["waiters"].as_array().expect("waiters");
            assert_eq!(waiters.len(), 1, "{lock}");
            assert_eq!(number(&waiters[0], "tid"), waiter);
            let holders = lock["holders"].as_array().expect("holders");
            assert_eq!(holders.len(), usize::from(is_released), "{lock}");
            for holder in holders {
                assert_eq!(holder["known_as"], "waker", "{lock}");
                assert_ne!(number(holder, "tid"), waiter, "{lock}");
            }
        }
    }
}

/// musl's own gcc, in other words.
const MUSL: [&str; 3] = [
    "-static",
    "-specs",
    "/usr/lib/x86_64-linux-musl/musl-gcc.specs",
];

/// Its locks name nobody, and have other words than glibc's.
#[test]
fn threads_that_are_stuck_in_musls_locks_wait_for_these() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (workload, known) = stuck_as(dir.path(), &MUSL, &["ring", "mm", "1"]);
    let report = now(workload.pid());
    let waits = report["waits"].as_array().expect("waits");
    assert_eq!(waits.len(), 3, "{report}");
    for wait in waits {
        let truth = &known[&number(wait, "tid")];
        assert_eq!(wait["class"], "mutex", "{wait}");
        assert_eq!(wait["address"], truth["address"], "{wait}");
        assert_eq!(wait["holder"]["kind"], "unrecorded", "{wait}");
    }
    workload.finish();
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
	say("done\n");
	await_go();
	return 0;
}
"#;

#[test]
fn an_error_in_musls_lock_is_no_thread() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let source = format!("{}{CROWD}", include_str!("../workloads/locks/stage.h"));
    let program = Command::new(compile(dir.path(), "crowd", &source, &MUSL));
    let script = "mount -t proc none /proc && exec \"$@\"";
    let (mut workload, tgid) = containers::enter(script, &program);
    let pid = tgid.to_string();
    let tool = Tool::start("lockstat", &["-U", "-j", "--class", "all", "-p", &pid]);
    tool.wait_attached();
    workload.go();
    workload.results();
    tool.interrupt();
    let report = report(&tool.finish());
    workload.finish();
    let locks = report["locks"].as_array().expect("locks");
    let mut crowds = locks
        .iter()
        .filter(|lock| number(lock, "contentions") >= 20);
    let crowd = crowds.next().expect("a lock that all wait for");
    let holders = crowd["holders"].as_array().expect("holders");
    assert!(!holders.is_empty(), "{crowd}");
    for holder in holders {
        assert_eq!(holder["known_as"], "waker", "{crowd}");
    }
}

/// As in two containers, which have /dev/shm of their own.
#[test]
fn files_of_one_number_on_two_devices_are_two_locks() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = lockstat_user::compile(dir.path(), OTHER, &[]);
    let contained = || {
        let script = "mount -t tmpfs none /mnt && exec \"$1\" /mnt/pool";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script, "sh"]);
        unshare.arg(program.get_program());
        Workload::spawn("locks", unshare).0
    };
    let mut both = [contained(), contained()];
    let options = ["-U", "-j", "--class", "all", "--comm", "locks"];
    let tool = Tool::start("lockstat", &options);
    tool.wait_attached();
    both.iter_mut().for_each(Workload::go);
    both.iter_mut().for_each(|one| drop(one.results()));
    tool.interrupt();
    let output = tool.finish();
    both.into_iter().for_each(Workload::finish);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report = output.report();
    let locks = report["locks"].as_array().expect("locks").iter();
    let pools: Vec<&Value> = locks.filter(|lock| lock["name"] == "pool+0x1000").collect();
    let [one, other] = pools[..] else {
        panic!("not two locks in files: {pools:#?}")
    };
    assert_eq!(one["inode"], other["inode"], "file systems alike");
    assert_ne!(one["device"], other["device"]);
    assert_eq!(
        (&one["contentions"], &other["contentions"]),
        (&1.into(), &1.into())
    );
}
