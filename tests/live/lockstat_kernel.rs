//! lockstat's kernel locks against perf's account of the same tracepoints, and against programs that hold a lock for as
//! long as they say.

use std::collections::HashMap;

use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::{alone, require_live};
use crate::perf_dwarf::Recording;
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

/// Threads that fight for a lock, as many rounds as the argument says.
const FIGHT: &str = r#"
#include <pthread.h>
#include <stdatomic.h>
static int rounds, ends[2];
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

/* One pipe: half of them write what the others read. */
static void bytes(int which)
{
	char buffer[4096] = "";

	for (int i = 0; i < rounds; i++)
		if ((which & 1 ? write(ends[1], buffer, sizeof(buffer)) : read(ends[0], buffer, sizeof(buffer))) <= 0)
			_exit(1);
}

static void (*work)(int);
static void *run(void *which)
{
	pthread_barrier_wait(&start);
	work((long)which);
	pthread_barrier_wait(&start);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	rounds = atoi(argv[2]);
	dir = argv[3];
	work = argv[1][0] == 'm' ? maps : argv[1][0] == 'n' ? names : bytes;
	if (pipe(ends))
		return 1;
	pthread_barrier_init(&start, NULL, 5);
	for (long i = 0; i < 4; i++)
		pthread_create(&thread, NULL, run, (void *)i);
	ready();
	pthread_barrier_wait(&start);
	pthread_barrier_wait(&start);
	say("done\n");
	await_go();
	return 0;
}
"#;

/// A thread takes a lock and comes to a page that userfaultfd keeps from it: it sleeps with the lock held for as long as
/// another thread likes. `f`: the inode's lock, by writing to a file; `p`: the mutex of a file's position, by reading.
const HOLD: &str = r#"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
static char mode;
static int file, uffd, waiter_tid;
static char *page;
static atomic_llong wait_ns;
static pthread_barrier_t step;

static void *hold(void *tid)
{
	*(int *)tid = gettid();
	for (;;) {
		pthread_barrier_wait(&step);
		if ((mode == 'f' ? write(file, page, 4096) : read(file, page, 4096)) != 4096)
			_exit(2);
		lseek(file, 0, SEEK_SET);
		pthread_barrier_wait(&step);
	}
}

static void *wait_for_it(void *unused)
{
	char byte = 0;

	waiter_tid = gettid();
	for (;;) {
		pthread_barrier_wait(&step);
		/* The holder's fault: from here on it has the lock. */
		struct uffd_msg fault;
		if (read(uffd, &fault, sizeof(fault)) != sizeof(fault))
			_exit(3);
		long long from = clock_ns(CLOCK_MONOTONIC);
		if (mode == 'f')
			pwrite(file, &byte, 1, 0);
		else
			lseek(file, 0, SEEK_CUR);
		wait_ns += clock_ns(CLOCK_MONOTONIC) - from;
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
	file = open(argv[2], O_CREAT | O_RDWR, 0600);
	if (write(file, zeros, 4096) != 4096 || lseek(file, 0, SEEK_SET))
		return 4;
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
	say("{\"holder\": %d, \"waiter\": %d, \"wait_ns\": %lld}\ndone\n", holder_tid, waiter_tid, (long long)wait_ns);
	await_go();
	/* The holder still sleeps in the kernel; exit_group ends that. */
	_exit(0);
}
"#;

fn report(output: &Output) -> Value {
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).expect("one line of JSON")
}

fn locks(report: &Value) -> &[Value] {
    report["locks"].as_array().expect("a list")
}

/// What perf saw of a lock: waits, their time in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    waits: u64,
    ns: u64,
}

/// Lines `TID SECONDS.NANOSECONDS: lock:contention_begin: 0xADDRESS (flags=…)`.
fn waits_by_address(script: &str) -> HashMap<String, Seen> {
    let mut begun: HashMap<(&str, &str), u64> = HashMap::new();
    let mut seen: HashMap<String, Seen> = HashMap::new();
    for line in script.lines() {
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("{line:?}"));
        let (tid, time, event, lock) = (word(), word(), word(), word());
        let (seconds, ns) = time.trim_end_matches(':').split_once('.').expect("a time");
        let parse = |digits: &str| digits.parse::<u64>().expect("digits");
        let time_ns = parse(seconds) * 1_000_000_000 + parse(ns);
        if event.contains("begin") {
            // A mutex begins again when it goes on to sleep.
            begun.entry((tid, lock)).or_insert(time_ns);
        } else if let Some(from_ns) = begun.remove(&(tid, lock)) {
            let sum = seen.entry(lock.to_owned()).or_default();
            sum.waits += 1;
            sum.ns += time_ns - from_ns;
        }
    }
    seen
}

/// Runs threads that fight, under perf and lockstat: the same waits, each of the same length. Returns the lock that was
/// waited for longest.
fn compare(what: &str, rounds: u64) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "fight", FIGHT, &["-pthread"]);
    let place = dir.path().join("place");
    std::fs::create_dir(&place).expect("a directory");
    let mut command = std::process::Command::new(program);
    command.args([what, &rounds.to_string()]).arg(&place);
    let (mut workload, pid) = Workload::spawn("fight", command);

    let events = ["-e", "lock:contention_begin", "-e", "lock:contention_end"];
    let mut recording = Recording::of(dir.path(), pid, &events);
    let tool = Tool::start("lockstat", &["-K", "-j", "-p", &pid.to_string()]);
    tool.wait_attached();
    recording.begin();
    workload.go();
    workload.results();
    tool.interrupt();
    let output = tool.finish();
    let script = recording.script(&["-F", "tid,time,event,trace", "--ns"]);
    let seen = waits_by_address(&script);
    workload.finish();

    let report = report(&output);
    let nested = number(&report, "losses.nested");
    let unbegun = number(&report, "losses.unbegun");
    let mut waits = HashMap::new();
    for lock in locks(&report) {
        let sum: &mut Seen = waits
            .entry(lock["address"].as_str().expect("text"))
            .or_default();
        sum.waits += number(lock, "contentions");
        sum.ns += number(lock, "total_ns");
    }
    let (mut ours, mut theirs) = (Seen::default(), Seen::default());
    for (address, seen) in &seen {
        let own = waits.get(&**address).copied().unwrap_or_default();
        // Interrupts in the middle of our programs are counted as such; perf's event comes up to a few us from ours.
        assert!(
            own.waits.abs_diff(seen.waits) <= nested + unbegun,
            "{address}: {own:?}, perf {seen:?}\n{}",
            output.stderr
        );
        (ours.waits, ours.ns) = (ours.waits + own.waits, ours.ns + own.ns);
        (theirs.waits, theirs.ns) = (theirs.waits + seen.waits, theirs.ns + seen.ns);
    }
    println!("{what}: {ours:?}, perf {theirs:?}, nested {nested}, unbegun {unbegun}");
    assert!(theirs.waits > 50, "nothing to compare: {theirs:?}");
    let slack_ns = 0.02 * theirs.ns as f64 + 3_000.0 * theirs.waits as f64;
    assert!(
        (ours.ns.abs_diff(theirs.ns) as f64) < slack_ns,
        "{ours:?}, perf {theirs:?}"
    );
    locks(&report)[0].clone()
}

#[test]
fn waits_for_one_memory_map_are_perfs() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let lock = compare("maps", 1_500);
    assert_eq!(lock["class"], "rwsem");
    let name = lock["name"].as_str().expect("text");
    assert!(name.starts_with("mmap_lock of fight "), "{lock}");
}

#[test]
fn waits_for_one_directory_are_perfs() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let lock = compare("names", 4_000);
    assert_eq!(lock["class"], "rwsem");
    let name = lock["name"].as_str().expect("text");
    assert!(name.starts_with("i_rwsem of dir place on "), "{lock}");
}

#[test]
fn waits_for_one_pipe_are_perfs() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let lock = compare("bytes", 40_000);
    println!("{} {}", lock["name"], lock["class"]);
}

/// Runs `rounds` waits for a lock that is held for 50 ms each; what lockstat says of it, and what the program does.
fn hold(mode: &str, rounds: u64, args: &[&str]) -> (Value, Value, Value) {
    let dir = tempfile::tempdir().expect("a directory");
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
    println!("{mode}: {said}\n{lock}");
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
    if !require_live() {
        return;
    }
    let _alone = alone();
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

#[test]
fn a_mutexes_holder_and_the_time_blocked_apart_from_spinning() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let (lock, said, _) = hold("p", 5, &[]);
    assert_eq!(
        (&lock["name"], &lock["class"]),
        (&"f_pos_lock".into(), &"mutex".into())
    );
    assert_eq!(number(&lock, "contentions"), 5);
    is_held_by(&lock, number(&said, "holder"), 5);
    let (own_ns, ns) = (number(&said, "wait_ns"), number(&lock, "total_ns"));
    assert!(
        ns <= own_ns && ns as f64 > 0.98 * own_ns as f64,
        "{ns} of {own_ns}"
    );
    // Who sleeps is not spun for.
    let (spin_ns, block_ns) = (number(&lock, "spin_ns"), number(&lock, "block_ns"));
    assert_eq!(spin_ns + block_ns, ns);
    assert!(block_ns as f64 > 0.99 * ns as f64, "{lock}");
}

#[test]
fn a_wait_that_does_not_end_is_counted_and_marked() {
    if !require_live() {
        return;
    }
    let _alone = alone();
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
