//! lockstat's kernel locks, where threads fight for them, against the log of the kernel's events.

use std::collections::{BTreeMap, BTreeSet};

use oracle::{Bracket, Engine, Logs, Pair, kernel_lock};

use crate::lockstat_kernel::locks;
use crate::lockstat_played::waited;
use crate::prelude::*;
use crate::traced::logged;

/// Threads that fight for a lock, as many rounds as the argument says.
const FIGHT: &str = r#"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#define FIGHTERS 4
static int rounds, ends[2], faults;
/* Rounds in which the writer has the pipe, and reads that are done. */
static int held, reads;
static char *page;
static volatile pid_t tids[FIGHTERS];
static volatile int resting;
static const char *dir;
static pthread_barrier_t start;

/* One memory map. */
static void maps(int which)
{
	for (int i = 0; i < rounds; i++) {
		char *pages = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int at = 0; at < 1 << 18; at += 4096)
			pages[at] = which;
		munmap(pages, 1 << 18);
	}
}

/* One directory. */
static void names(int which)
{
	char from[300], to[300];

	snprintf(from, sizeof(from), "%s/a%d", dir, which);
	snprintf(to, sizeof(to), "%s/b%d", dir, which);
	for (int i = 0; i < rounds; i++) {
		close(open(from, O_CREAT | O_WRONLY, 0600));
		rename(from, to);
		unlink(to);
	}
}

/* A page that is there when we say so: whoever copies from it waits until then. */
static void watch_page(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (unsigned long)page;
	range.range.len = 4096;
	faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
		_exit(3);
}

/* One pipe: the first thread writes to it what is not there yet, and has its lock meanwhile. */
static void bytes(int which)
{
	char buffer[1024];

	for (int i = 0; i < rounds; i++) {
		if (!which) {
			while (__atomic_load_n(&reads, __ATOMIC_ACQUIRE) < i * (FIGHTERS - 1))
				usleep(200);
			madvise(page, 4096, MADV_DONTNEED);
			if (write(ends[1], page, sizeof(buffer)) != sizeof(buffer))
				_exit(4);
			continue;
		}
		while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) <= i)
			usleep(200);
		if (!read(ends[0], buffer, sizeof(buffer)))
			_exit(5);
		__atomic_add_fetch(&reads, 1, __ATOMIC_RELEASE);
	}
}

/* Gives the page when all others wait for the writer. */
static void give_pages(void)
{
	struct uffdio_zeropage zero = { .range = { .len = 4096 } };
	struct uffd_msg fault;

	zero.range.start = (unsigned long)page;
	for (int i = 0; i < rounds; i++) {
		if (read(faults, &fault, sizeof(fault)) != sizeof(fault))
			_exit(6);
		__atomic_add_fetch(&held, 1, __ATOMIC_RELEASE);
		for (int other = 1; other < FIGHTERS; other++) {
			await_call(&tids[other], SYS_read);
			await_state(&tids[other], 'D');
		}
		if (ioctl(faults, UFFDIO_ZEROPAGE, &zero))
			_exit(7);
	}
}

static void (*work)(int);
static void *run(void *which)
{
	tids[(long)which] = syscall(SYS_gettid);
	pthread_barrier_wait(&start);
	work((long)which);
	__atomic_add_fetch(&resting, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* Until all sleep: none waits for any lock, or will before it is woken. */
static void await_rest(void)
{
	for (int i = 0; i < FIGHTERS; i++)
		await_state(&tids[i], 'S');
}

int main(int argc, char **argv)
{
	pthread_t thread;

	rounds = atoi(argv[2]);
	dir = argv[3];
	work = argv[1][0] == 'm' ? maps : argv[1][0] == 'n' ? names : bytes;
	if (pipe2(ends, O_NONBLOCK))
		return 1;
	if (work == bytes)
		watch_page();
	pthread_barrier_init(&start, NULL, FIGHTERS + 1);
	for (long i = 0; i < FIGHTERS; i++)
		pthread_create(&thread, NULL, run, (void *)i);
	for (int i = 0; i < FIGHTERS; i++)
		while (!tids[i])
			usleep(1000);
	await_rest();
	ready();
	pthread_barrier_wait(&start);
	for (int i = 0; i < FIGHTERS; i++)
		say("{\"tid\": %d}\n", tids[i]);
	if (work == bytes)
		give_pages();
	while (resting < FIGHTERS)
		usleep(1000);
	await_rest();
	return finished();
}
"#;

/// A thread's waits for each lock as lockstat has them: how often, and ns.
fn own_waits(report: &Value, tid: u32) -> BTreeMap<u64, (u64, u64)> {
    let by_lock = locks(report)
        .iter()
        .map(|lock| (address(lock), waited([lock], tid.into())));
    by_lock.filter(|(_, (count, _))| *count > 0).collect()
}

/// The thread has the log's waits for each lock, and their time inside the bracket; returns how many are missing, which the tool must
/// have counted as such, and how many there are. Locks that the logs are unsure of are no more than the events that they missed, and
/// the one that was fought for is none of them.
fn assert_waits(report: &Value, logs: &Logs, tid: u32, fought: u64) -> (u64, u64) {
    let own = own_waits(report, tid);
    let log = kernel_lock::waits(logs, tid);
    assert!(
        log.unsure.len() as u64 <= logs.missed && !log.unsure.contains(&fought),
        "{:?}, {} missed, {fought:#x}",
        log.unsure,
        logs.missed
    );
    let (mut missing, mut all) = (0, 0);
    let both: BTreeSet<&u64> = own.keys().chain(log.by_lock.keys()).collect();
    for lock in both.into_iter().filter(|lock| !log.unsure.contains(lock)) {
        let (count, ns) = own.get(lock).copied().unwrap_or_default();
        let waits = log.by_lock.get(lock).into_iter().flatten();
        let truth: Bracket = waits.clone().copied().collect();
        let missing_here = truth.count.saturating_sub(count);
        // Those that are missing may be the longest.
        let mut least: Vec<u64> = waits.clone().map(Pair::least_ns).collect();
        least.sort_unstable();
        least.truncate(least.len() - usize::try_from(missing_here).expect("few"));
        let least_ns: u64 = least.iter().sum();
        assert!(
            count <= truth.count && (least_ns..=truth.most_ns).contains(&ns),
            "thread {tid}, lock {lock:#x}: {count} waits, {ns} ns; {truth:?}"
        );
        missing += missing_here;
        all += truth.count;
    }
    (missing, all)
}

/// Runs threads that fight, under lockstat: the same waits as in the log, of the same length. Returns all locks.
///
/// Compared are the threads that fight. They sleep when either window begins or ends, so that neither can cut a wait or see
/// one more; the main thread is on its way into or out of a read then.
fn compare((what, rounds, class, name): Fought) -> Vec<Value> {
    let program = Program::c("fight", FIGHT, "-pthread");
    let place = program.dir().join("place");
    std::fs::create_dir(&place).expect("a directory");
    let mut workload = program.start(format!("{what} {rounds} {}", place.display()));
    let args = format!("-K -j -p {}", workload.pid());
    let start = || Tool::start("lockstat", args);
    let (output, fighters, logs) = logged(&[Engine::Locks], start, &mut workload);
    workload.finish();

    let report = output.report();
    let loss = |field: &str| number(&report["losses"], field);
    let (nested, unbegun, unended) = (loss("nested"), loss("unbegun"), loss("unended"));
    // An interrupt's beginning or end, missed in the middle of our programs, may leave the other one over.
    assert!(unbegun + unended <= nested, "{}", output.stderr);
    let mut fought = locks(&report)
        .iter()
        .filter(|lock| is_it(lock, class, name));
    let fought = fought.next().map(address);
    let fought = fought.unwrap_or_else(|| panic!("{report:#}"));
    let (mut missing, mut all) = (0, 0);
    for fighter in &fighters {
        let (missing_of_it, of_it) = assert_waits(&report, &logs, id(fighter, "tid"), fought);
        (missing, all) = (missing + missing_of_it, all + of_it);
    }
    eprintln!("{what}: {all} waits; the logs missed {}", logs.missed);
    assert!(all > 50, "nothing to compare: {all}");
    // Interrupts in the middle of our programs are counted as such, their beginnings and their ends.
    assert_within(
        format!("{what}: missing"),
        missing,
        ..=nested,
        &output.stderr,
    );
    locks(&report).to_vec()
}

/// A fight's subject, how often it is fought, and its lock: class and beginning of its name.
type Fought = (&'static str, u64, &'static str, &'static str);

const FIGHTS: [Fought; 3] = [
    ("maps", 1_500, "rwsem", "mmap_lock of fight "),
    ("names", 4_000, "rwsem", "i_rwsem of dir place on "),
    ("bytes", 20, "mutex", "pipe:["),
];

/// The lock is there, and the one that was waited for longest is the first.
fn assert_fought(fight: Fought) {
    let _machine = Machine::alone();
    let locks = compare(fight);
    let ns: Vec<u64> = locks.iter().map(|lock| number(lock, "total_ns")).collect();
    assert!(ns.is_sorted_by(|one, next| one >= next), "{ns:?}");
}

fn is_it(lock: &Value, class: &str, name: &str) -> bool {
    lock["class"] == class
        && lock["name"]
            .as_str()
            .is_some_and(|own| own.starts_with(name))
}

#[test]
fn waits_for_one_memory_map_are_the_logs() {
    assert_fought(FIGHTS[0]);
}

#[test]
fn waits_for_one_directory_are_the_logs() {
    assert_fought(FIGHTS[1]);
}

#[test]
fn waits_for_one_pipe_are_the_logs() {
    assert_fought(FIGHTS[2]);
}

/// A thread that has another lock while the machine stands still has others wait for that.
#[test]
#[ignore = "statistical: make truth"]
fn the_lock_that_is_fought_for_is_waited_for_longest() {
    let _machine = Machine::alone();
    for fight in FIGHTS {
        let locks = compare(fight);
        assert!(is_it(&locks[0], fight.2, fight.3), "{}", locks[0]);
    }
}
