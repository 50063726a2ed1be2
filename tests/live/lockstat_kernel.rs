//! lockstat's kernel locks against programs that hold a lock for as long as they say.

use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::alone;
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

/// A thread takes a lock and comes to a page that userfaultfd keeps from it: it sleeps with the lock held for as long as
/// another thread likes. `f`: the inode's lock, by writing to a file; `p`: the mutex of a file's position, by reading; `w`: a
/// pipe's, by writing.
const HOLD: &str = r#"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
static char mode;
static int file, uffd, waiter_tid, hogged;
static char *page;
static atomic_llong wait_ns, queued_ns;
static pthread_barrier_t step;

/* What the calling thread has waited for a CPU, ns. */
static long long queued(void)
{
	char text[128], *number = text;
	int fd = open("/proc/thread-self/schedstat", O_RDONLY);

	text[read(fd, text, sizeof(text) - 1)] = 0;
	close(fd);
	strtoll(number, &number, 10);
	return strtoll(number, NULL, 10);
}

/* Wants the CPU that the waiter may have. */
static void *hog(void *unused)
{
	for (;;)
		__asm__ volatile("" : : : "memory");
	return unused;
}

static void run_on_one_cpu(void)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* Wakes up without pushing anybody from the CPU. */
static void be_patient(void)
{
	struct sched_param none = { 0 };

	sched_setscheduler(0, SCHED_BATCH, &none);
}

static void *hold(void *tid)
{
	*(int *)tid = gettid();
	for (;;) {
		pthread_barrier_wait(&step);
		if ((mode == 'p' ? read(file, page, 4096) : write(file, page, 4096)) != 4096)
			_exit(2);
		pthread_barrier_wait(&step);
	}
}

static void *wait_for_it(void *unused)
{
	char byte = 0;
	pthread_t thread;

	waiter_tid = gettid();
	if (hogged) {
		run_on_one_cpu();
		pthread_create(&thread, NULL, hog, NULL);
		be_patient();
	}
	for (;;) {
		pthread_barrier_wait(&step);
		/* The holder's fault: from here on it has the lock. */
		struct uffd_msg fault;
		if (read(uffd, &fault, sizeof(fault)) != sizeof(fault))
			_exit(3);
		long long queued_before = queued(), from = clock_ns(CLOCK_MONOTONIC);
		if (mode == 'f')
			pwrite(file, &byte, 1, 0);
		else if (mode == 'p')
			lseek(file, 0, SEEK_SET);
		else if (write(file, &byte, 1) != 1)
			_exit(7);
		wait_ns += clock_ns(CLOCK_MONOTONIC) - from;
		queued_ns += queued() - queued_before;
		pthread_barrier_wait(&step);
	}
}

/* Until the waiter sleeps uninterruptibly, as for a lock. */
static void await_waiter(void)
{
	char path[64], stat[128];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter_tid);
	do {
		int fd = open(path, O_RDONLY);
		stat[read(fd, stat, sizeof(stat) - 1)] = 0;
		close(fd);
		sched_yield();
	} while (strrchr(stat, ')')[2] != 'D');
}

int main(int argc, char **argv)
{
	struct timespec pause = { .tv_nsec = 50000000 };
	struct uffdio_api api = { .api = UFFD_API };
	char zeros[4096] = "";
	pthread_t thread;
	int holder_tid, rounds = atoi(argv[3]);

	mode = argv[1][0];
	hogged = argv[1][1] == 'h';
	file = open(argv[2], O_CREAT | O_RDWR, 0600);
	if (write(file, zeros, 4096) != 4096 || lseek(file, 0, SEEK_SET))
		return 4;
	if (mode == 'w') {
		int ends[2];

		if (pipe(ends))
			return 4;
		file = ends[1];
	}
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_register here = { .range = { (long)page, 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	if (ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &here))
		return 5;
	pthread_barrier_init(&step, NULL, 3);
	pthread_create(&thread, NULL, hold, &holder_tid);
	pthread_create(&thread, NULL, wait_for_it, NULL);
	ready();
	for (int i = 0; i < rounds || rounds == 0; i++) {
		struct uffdio_zeropage give = { .range = { (long)page, 4096 } };

		pthread_barrier_wait(&step);
		await_waiter();
		nanosleep(&pause, NULL);
		if (rounds == 0)
			break;
		if (ioctl(uffd, UFFDIO_ZEROPAGE, &give))
			return 6;
		pthread_barrier_wait(&step);
		madvise(page, 4096, MADV_DONTNEED);
	}
	struct stat about;
	fstat(file, &about);
	say("{\"holder\": %d, \"waiter\": %d, \"wait_ns\": %lld, \"queued_ns\": %lld, \"inode\": %ld}\ndone\n", holder_tid,
	    waiter_tid, (long long)wait_ns, (long long)queued_ns, (long)about.st_ino);
	await_go();
	/* The holder still sleeps in the kernel; exit_group ends that. */
	_exit(0);
}
"#;

pub(crate) fn report(output: &Output) -> Value {
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("one line of JSON")
}

pub(crate) fn locks(report: &Value) -> &[Value] {
    report["locks"].as_array().expect("a list")
}

/// Runs `rounds` waits for a lock that is held for 50 ms each; what lockstat says of it, and what the program does.
fn hold(mode: &str, rounds: u64, args: &[&str]) -> (Value, Value, Value) {
    // In memory: who has the lock of a file on a disk may wait for its journal.
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let program = compile(dir.path(), "hold", HOLD, &["-pthread"]);
    let mut command = std::process::Command::new(program);
    command
        .arg(mode)
        .arg(dir.path().join("held"))
        .arg(rounds.to_string());
    let (mut workload, pid) = Workload::spawn("hold", command);
    let pid = pid.to_string();
    let tool = Tool::start("lockstat", &[&["-K", "-j", "-p", &pid], args].concat());
    tool.wait_attached();
    workload.go();
    let said = workload.results().remove(0);
    tool.interrupt();
    let output = tool.finish();
    workload.finish();
    let report = report(&output);
    let waiter = number(&said, "waiter");
    let is_ours = |lock: &&Value| {
        let waiters = lock["waiters"].as_array().expect("a list");
        waiters.iter().any(|one| number(one, "tid") == waiter)
            && number(lock, "total_ns") > 10_000_000
    };
    let found = locks(&report).iter().find(is_ours);
    let lock = found
        .unwrap_or_else(|| panic!("no such lock: {report}"))
        .clone();
    eprintln!("{mode}: {said}\n{lock}");
    (lock, said, report)
}

/// The holder sleeps in its page fault whenever the waiter comes.
fn is_held_by(lock: &Value, holder: u64, waits: u64) {
    let holders = lock["holders"].as_array().expect("a list");
    let ours = holders.iter().filter(|one| number(one, "tid") == holder);
    let (mut asleep, mut on_fault) = (0, 0);
    for one in ours {
        assert_eq!(one["known_as"], "owner", "{one}");
        asleep += number(one, "blocked");
        let frames = one["kernel"].as_array().expect("a list");
        if frames.iter().any(|frame| frame == "handle_userfault") {
            on_fault += number(one, "waits");
        }
    }
    assert_eq!((asleep, on_fault), (waits, waits), "{lock}");
}

#[test]
fn an_inodes_holder_and_the_time_that_it_costs() {
    let Some(_machine) = alone() else {
        return;
    };
    let (lock, said, _) = hold("f", 5, &[]);
    let name = lock["name"].as_str().expect("text");
    assert!(name.starts_with("i_rwsem of file held on "), "{lock}");
    assert_eq!(number(&lock, "contentions"), 5);
    is_held_by(&lock, number(&said, "holder"), 5);
    let (own_ns, ns) = (number(&said, "wait_ns"), number(&lock, "total_ns"));
    assert!(
        ns <= own_ns && ns as f64 > 0.98 * own_ns as f64,
        "{ns} of {own_ns}"
    );
}

/// A mutex held by a sleeper, five times 50 ms.
fn is_slept_for((lock, said, report): &(Value, Value, Value)) {
    assert_eq!(lock["class"], "mutex");
    assert_eq!(number(lock, "contentions"), 5);
    is_held_by(lock, number(said, "holder"), 5);
    let (own_ns, ns) = (number(said, "wait_ns"), number(lock, "total_ns"));
    assert!(
        ns <= own_ns && ns as f64 > 0.98 * own_ns as f64,
        "{ns} of {own_ns}"
    );
    // Each wait tries to spin first. Who sleeps is not spun for; it is one wait all the same.
    assert_eq!(number(report, "losses.unended"), 0, "{report}");
    assert!(number(lock, "spin_ns") > 0, "{lock}");
    let (spin_ns, block_ns) = (number(lock, "spin_ns"), number(lock, "block_ns"));
    assert_eq!(spin_ns + block_ns, ns);
    assert!(block_ns as f64 > 0.99 * ns as f64, "{lock}");
}

#[test]
fn a_mutexes_holder_and_the_time_blocked_apart_from_spinning() {
    let Some(_machine) = alone() else {
        return;
    };
    let held = hold("p", 5, &[]);
    assert_eq!(held.0["name"], "f_pos_lock");
    is_slept_for(&held);
}

#[test]
fn a_waiter_that_is_queued_for_a_cpu_is_told_from_one_that_waits_for_the_lock() {
    let Some(_machine) = alone() else {
        return;
    };
    // Whether the hog is in its way is the scheduler's business: usually it is.
    let queued = (0..5).find_map(|_| {
        let (lock, said, _) = hold("ph", 17, &[]);
        let own_ns = number(&said, "queued_ns");
        (own_ns > 1_000_000).then_some((lock, own_ns))
    });
    let (lock, own_ns) = queued.expect("a CPU that is short");
    let ns = number(&lock, "runqueue_ns");
    // The scheduler's account begins a little later, when the waiter is queued, and takes in what passes before the wait and
    // behind it.
    let share = ns as f64 / own_ns as f64;
    assert!((0.9..=1.02).contains(&share), "{ns} of {own_ns}");
    assert!(ns < number(&lock, "block_ns"), "{lock}");
}

#[test]
fn whoever_gives_a_mutex_back_is_known_with_the_stack() {
    let Some(_machine) = alone() else {
        return;
    };
    let (_, said, report) = hold("p", 5, &["--waker"]);
    let stacks = report["stacks"].as_array().expect("a list");
    let waits = |stack: &&Value| {
        number(stack, "tid") == number(&said, "waiter")
            && stack["values"][0]
                .as_u64()
                .is_some_and(|ns| ns > 10_000_000)
    };
    let ours: Vec<&Value> = stacks.iter().filter(waits).collect();
    assert!(!ours.is_empty(), "{report}");
    for stack in ours {
        let waker = &stack["waker"];
        assert_eq!(waker["tid"], said["holder"], "{stack}");
        let has = |part: &str, name: &str| {
            let frames = waker[part].as_array().expect("a list");
            frames.iter().any(|frame| frame["name"] == name)
        };
        assert!(has("user", "hold"), "{stack}");
        assert!(
            has("kernel", "__x64_sys_read") || has("kernel", "ksys_read"),
            "{stack}"
        );
    }
}

#[test]
fn a_pipe_is_known_by_the_number_that_proc_has() {
    let Some(_machine) = alone() else {
        return;
    };
    let held = hold("w", 5, &[]);
    let inode = number(&held.1, "inode");
    assert_eq!(held.0["name"], format!("pipe:[{inode}]"));
    is_slept_for(&held);
}

#[test]
fn a_wait_that_does_not_end_is_counted_and_marked() {
    let Some(_machine) = alone() else {
        return;
    };
    for args in [&[][..], &["-i", "3600"]] {
        let (lock, said, report) = hold("p", 0, args);
        assert_eq!(
            (number(&lock, "contentions"), number(&lock, "open")),
            (1, 1)
        );
        is_held_by(&lock, number(&said, "holder"), 1);
        // The program reported after 50 ms of it.
        let ns = number(&lock, "total_ns");
        assert!(
            (50_000_000..number(&report, "duration_ns")).contains(&ns),
            "{lock}"
        );
        let stacks = report["stacks"].as_array().expect("a list");
        let waits = |stack: &&Value| number(stack, "tid") == number(&said, "waiter");
        let stack = stacks.iter().find(waits).expect("the waiter's stack");
        let user = stack["user"].as_array().expect("a list");
        let is_ours = |frame: &Value| frame["name"] == "wait_for_it";
        assert!(user.iter().any(is_ours), "{stack}");
    }
}
