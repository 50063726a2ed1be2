//! lockstat's kernel locks against programs that hold a lock, and the log of the kernel's events.

use oracle::{Bracket, Engine, Logs, Span, kernel_lock, run_queue};
use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::alone;
use crate::lockstat_played::{address, waited};
use crate::tool::{Output, Tool};
use crate::traced::logged;
use crate::workload::{Workload, number};

/// A thread takes a lock and comes to a page that userfaultfd keeps from it: it sleeps with the lock held for as long as
/// another thread likes. `f`: the inode's lock, by writing to a file; `p`: the mutex of a file's position, by reading; `w`: a
/// pipe's, by writing.
const HOLD: &str = r#"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
static char mode;
static int file, uffd, waiter_tid, hogged;
static char *page;
static sem_t burst;
static cpu_set_t allowed;
static volatile int hogs;
static pthread_barrier_t step;

/* Has the CPU that the waiter must have, for 10 ms whenever it is told to, before anybody else. */
static void *hog(void *unused)
{
	struct sched_param first = { .sched_priority = 1 };
	long long until;

	if (sched_setscheduler(0, SCHED_FIFO, &first))
		_exit(8);
	for (;;) {
		sem_wait(&burst);
		until = clock_ns(CLOCK_MONOTONIC) + 10000000;
		hogs = 1;
		while (clock_ns(CLOCK_MONOTONIC) < until)
			;
		hogs = 0;
	}
	return unused;
}

/* On the first CPU, or on all but that one. */
static void run_on_first_cpu(int only)
{
	cpu_set_t set = allowed;
	int cpu = 0;

	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	if (only) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
	} else {
		CPU_CLR(cpu, &set);
	}
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(8);
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
		run_on_first_cpu(1);
		pthread_create(&thread, NULL, hog, NULL);
	}
	for (;;) {
		pthread_barrier_wait(&step);
		/* The holder's fault: from here on it has the lock. */
		struct uffd_msg fault;
		if (read(uffd, &fault, sizeof(fault)) != sizeof(fault))
			_exit(3);
		if (mode == 'f')
			pwrite(file, &byte, 1, 0);
		else if (mode == 'p')
			lseek(file, 0, SEEK_SET);
		else if (write(file, &byte, 1) != 1)
			_exit(7);
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
	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (hogged)
		run_on_first_cpu(0);
	pthread_barrier_init(&step, NULL, 3);
	sem_init(&burst, 0, 0);
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
		if (hogged) {
			sem_post(&burst);
			while (!hogs)
				sched_yield();
		}
		if (ioctl(uffd, UFFDIO_ZEROPAGE, &give))
			return 6;
		pthread_barrier_wait(&step);
		madvise(page, 4096, MADV_DONTNEED);
	}
	struct stat about;
	fstat(file, &about);
	say("{\"holder\": %d, \"waiter\": %d, \"inode\": %ld}\ndone\n", holder_tid, waiter_tid,
	    (long)about.st_ino);
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

/// What lockstat says of a lock that was held, what the program says, and what the kernel did.
struct Held {
    lock: Value,
    said: Value,
    report: Value,
    logs: Logs,
}

/// Runs `rounds` waits for a lock that is held for 50 ms each.
fn hold(mode: &str, rounds: u64, args: &[&str]) -> Held {
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
    let start = || Tool::start("lockstat", &[&["-K", "-j", "-p", &*pid], args].concat());
    let engines = &[Engine::Scheduler, Engine::Wakings, Engine::Locks];
    let (output, mut said, logs) = logged(engines, start, &mut workload);
    workload.finish();
    let report = report(&output);
    let said = said.remove(0);
    let waiter = number(&said, "waiter");
    let is_ours =
        |lock: &&Value| waited([*lock], waiter).0 > 0 && number(lock, "total_ns") > 10_000_000;
    let found = locks(&report).iter().find(is_ours);
    let lock = found
        .unwrap_or_else(|| panic!("no such lock: {report}"))
        .clone();
    eprintln!("{mode}: {said}\n{lock}");
    Held {
        lock,
        said,
        report,
        logs,
    }
}

impl Held {
    fn waiter(&self) -> u32 {
        u32::try_from(number(&self.said, "waiter")).expect("a thread ID")
    }

    /// The waiter waited for the lock so often, for a time inside the log's bracket.
    fn assert_waited(&self, rounds: u64) {
        let tid = self.waiter();
        let waits = kernel_lock::waits(&self.logs, tid);
        let waits = &waits.by_lock[&address(&self.lock)];
        let truth: Bracket = waits.iter().copied().collect();
        let (count, ns) = waited([&self.lock], tid.into());
        eprintln!("{count} waits, {ns} ns; {truth:?}");
        assert!(
            truth.holds(count, ns),
            "{count}, {ns} ns; {truth:?}: {}",
            self.lock
        );
        assert_eq!(count, rounds);
        assert_eq!(number(&self.lock, "contentions"), rounds);
    }

    /// What of its waits for the lock the waiter was queued for a CPU.
    fn queued(&self) -> Bracket {
        let tid = self.waiter();
        let waits = kernel_lock::waits(&self.logs, tid);
        let queued = run_queue::waits_since_waking(&self.logs, tid).expect("logs that agree");
        let waits = waits.by_lock[&address(&self.lock)].iter();
        let common = waits.flat_map(|wait| {
            let of_wait = |span: &Span| span.pair.common(wait);
            queued.iter().map(of_wait).filter(|pair| pair.most_ns() > 0)
        });
        common.collect()
    }
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
    let held = hold("f", 5, &[]);
    let name = held.lock["name"].as_str().expect("text");
    assert!(name.starts_with("i_rwsem of file held on "), "{name}");
    held.assert_waited(5);
    is_held_by(&held.lock, number(&held.said, "holder"), 5);
}

/// A mutex held by a sleeper, five times 50 ms.
fn is_slept_for(held: &Held) {
    let lock = &held.lock;
    assert_eq!(lock["class"], "mutex");
    held.assert_waited(5);
    is_held_by(lock, number(&held.said, "holder"), 5);
    // Each wait tries to spin first. Who sleeps is not spun for; it is one wait all the same.
    assert_eq!(number(&held.report, "losses.unended"), 0, "{}", held.report);
    assert!(number(lock, "spin_ns") > 0, "{lock}");
    let (spin_ns, block_ns) = (number(lock, "spin_ns"), number(lock, "block_ns"));
    assert_eq!(spin_ns + block_ns, number(lock, "total_ns"));
    assert!(block_ns >= 5 * 50_000_000, "{lock}");
}

#[test]
fn a_mutexes_holder_and_the_time_blocked_apart_from_spinning() {
    let Some(_machine) = alone() else {
        return;
    };
    let held = hold("p", 5, &[]);
    assert_eq!(held.lock["name"], "f_pos_lock");
    is_slept_for(&held);
}

#[test]
fn a_waiter_that_is_queued_for_a_cpu_is_told_from_one_that_waits_for_the_lock() {
    let Some(_machine) = alone() else {
        return;
    };
    let held = hold("ph", 5, &[]);
    held.assert_waited(5);
    let (truth, queued_ns) = (held.queued(), number(&held.lock, "runqueue_ns"));
    eprintln!("{queued_ns} ns queued; {truth:?}");
    assert!(
        (truth.least_ns..=truth.most_ns).contains(&queued_ns),
        "{queued_ns}; {truth:?}: {}",
        held.lock
    );
    // Whatever becomes of the CPUs, somebody has the waiter's when it is woken.
    assert!(truth.least_ns > 0 && queued_ns < number(&held.lock, "block_ns"));
}

#[test]
fn whoever_gives_a_mutex_back_is_known_with_the_stack() {
    let Some(_machine) = alone() else {
        return;
    };
    let Held { said, report, .. } = hold("p", 5, &["--waker"]);
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
    let inode = number(&held.said, "inode");
    assert_eq!(held.lock["name"], format!("pipe:[{inode}]"));
    is_slept_for(&held);
}

#[test]
fn a_wait_that_does_not_end_is_counted_and_marked() {
    let Some(_machine) = alone() else {
        return;
    };
    for args in [&[][..], &["-i", "3600"]] {
        let Held {
            lock, said, report, ..
        } = hold("p", 0, args);
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
