//! lockstat's kernel locks against perf's account of the same tracepoints: wait by wait.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::c_program::compile;
use crate::cpu_times::stolen_ns;
use crate::kernel::alone;
use crate::lockstat_kernel::{locks, report};
use crate::perf_dwarf::Recording;
use crate::tool::Tool;
use crate::workload::{Workload, number};

/// Threads that fight for a lock, as many rounds as the argument says.
const FIGHT: &str = r#"
#include <pthread.h>
#include <sched.h>
#define FIGHTERS 4
static int rounds, ends[2];
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

/* One pipe: all look into it, without waiting for anything else than for each other. */
static void bytes(int which)
{
	char buffer[1024];
	cpu_set_t all, one;

	/* On two CPUs, whatever the scheduler thinks: else they meet rarely. */
	CPU_ZERO(&one);
	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0, nth = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && nth++ % 2 == which / 2 % 2 && nth <= 2)
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
	for (int i = 0; i < rounds; i++)
		if ((which & 1 ? write(ends[1], buffer, sizeof(buffer)) : read(ends[0], buffer, sizeof(buffer))) == 0)
			_exit(1);
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
	char path[64], stat[256];

	for (int i = 0; i < FIGHTERS; i++)
		do {
			usleep(1000);
			snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tids[i]);
			int fd = open(path, O_RDONLY);
			stat[read(fd, stat, sizeof(stat) - 1)] = 0;
			close(fd);
		} while (strrchr(stat, ')')[2] != 'S');
}

int main(int argc, char **argv)
{
	pthread_t thread;

	rounds = atoi(argv[2]);
	dir = argv[3];
	work = argv[1][0] == 'm' ? maps : argv[1][0] == 'n' ? names : bytes;
	if (pipe2(ends, O_NONBLOCK))
		return 1;
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
	while (resting < FIGHTERS)
		usleep(1000);
	await_rest();
	say("done\n");
	await_go();
	return 0;
}
"#;

/// Pauses of a virtual machine that no clock of its own counts as stolen, ns.
const MOST_PAUSED_NS: u64 = 20_000_000;

/// A thread and the address of a lock.
type Pair = (u64, String);

/// What a thread waited for a lock: how often, and ns.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    waits: u64,
    ns: u64,
}

/// Waits as perf's events have them, and the events that perf says it lost.
fn perfs_waits(script: &str) -> (HashMap<Pair, Seen>, u64) {
    let mut begun: HashMap<Pair, u64> = HashMap::new();
    let mut seen: HashMap<Pair, Seen> = HashMap::new();
    let mut lost = 0;
    for line in script.lines() {
        if let Some((_, events)) = line.split_once("PERF_RECORD_LOST lost ") {
            lost += events.trim().parse::<u64>().expect("a number");
            continue;
        }
        // `TID SECONDS.NANOSECONDS: lock:contention_begin: 0xADDRESS (flags=…)`.
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("{line:?}"));
        let (tid, time, event, lock) = (word(), word(), word(), word());
        if tid == "-1" {
            // A thread that is gone.
            continue;
        }
        let (seconds, ns) = time.trim_end_matches(':').split_once('.').expect("a time");
        let parse = |digits: &str| digits.parse::<u64>().expect("digits");
        let time_ns = parse(seconds) * 1_000_000_000 + parse(ns);
        let pair = (parse(tid), lock.to_owned());
        if event.contains("begin") {
            // A mutex begins again when it goes on to sleep.
            begun.entry(pair).or_insert(time_ns);
        } else if let Some(from_ns) = begun.remove(&pair) {
            let sum = seen.entry(pair).or_default();
            sum.waits += 1;
            sum.ns += time_ns - from_ns;
        }
    }
    (seen, lost)
}

fn own_waits(report: &Value) -> HashMap<Pair, Seen> {
    let mut seen: HashMap<Pair, Seen> = HashMap::new();
    for lock in locks(report) {
        let address = lock["address"].as_str().expect("text");
        for waiter in lock["waiters"].as_array().expect("a list") {
            let pair = (number(waiter, "tid"), address.to_owned());
            let sum = seen.entry(pair).or_default();
            sum.waits += number(waiter, "count");
            sum.ns += number(waiter, "total_ns");
        }
    }
    seen
}

fn lock_at<'a>(report: &'a Value, address: &str) -> Option<&'a Value> {
    locks(report).iter().find(|lock| lock["address"] == address)
}

/// For each thread that fights and each lock the same waits and time as perf's events have. Returns the waits that are missing.
fn hold_against_perf(report: &Value, script: &str, fighters: &[u64]) -> u64 {
    let ((perfs, lost), own) = (perfs_waits(script), own_waits(report));
    assert_eq!(lost, 0, "perf's rings are too small");
    let (mut ours, mut theirs) = (Seen::default(), Seen::default());
    let mut missed = 0;
    let pairs: HashSet<&Pair> = perfs.keys().chain(own.keys()).collect();
    for pair in pairs.iter().filter(|pair| fighters.contains(&pair.0)) {
        let found = own.get(pair).copied().unwrap_or_default();
        let seen = perfs.get(pair).copied().unwrap_or_default();
        missed += seen.waits.saturating_sub(found.waits);
        // perf's event comes some 100 ns from ours, and the machine's host may pause it between them.
        let slack_ns = seen.ns / 50 + 300 * seen.waits + MOST_PAUSED_NS + stolen_ns();
        assert!(
            found.ns.abs_diff(seen.ns) < slack_ns,
            "{pair:?}: {found:?}, perf {seen:?}: {:?}",
            lock_at(report, &pair.1)
        );
        let of_lock = || script.lines().filter(|line| line.contains(&pair.1));
        assert!(
            found.waits <= seen.waits,
            "{pair:?}: {found:?}, perf {seen:?}: {:?} {:#?}",
            lock_at(report, &pair.1),
            of_lock().take(9).collect::<Vec<_>>()
        );
        (ours.waits, ours.ns) = (ours.waits + found.waits, ours.ns + found.ns);
        (theirs.waits, theirs.ns) = (theirs.waits + seen.waits, theirs.ns + seen.ns);
    }
    eprintln!("{ours:?}, perf {theirs:?}, missed {missed}");
    assert!(theirs.waits > 50, "nothing to compare: {theirs:?}");
    // perf's event comes up to a few us from ours.
    let slack_ns = 0.02 * theirs.ns as f64 + 3_000.0 * theirs.waits as f64;
    assert!(
        (ours.ns.abs_diff(theirs.ns) as f64) < slack_ns,
        "{ours:?}, perf {theirs:?}"
    );
    missed
}

/// Runs threads that fight, under perf and lockstat: the same waits, each of the same length. Returns the lock that was
/// waited for longest.
///
/// Compared are the threads that fight. They sleep when either window begins or ends, so that neither can cut a wait or see
/// one more; the main thread is on its way into or out of a read then.
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
    let fighters: Vec<u64> = workload
        .results()
        .iter()
        .map(|one| number(one, "tid"))
        .collect();
    tool.interrupt();
    let output = tool.finish();
    let script = recording.script(&["-F", "tid,time,event,trace", "--ns", "--show-lost-events"]);
    workload.finish();

    let report = report(&output);
    let nested = number(&report, "losses.nested");
    let unbegun = number(&report, "losses.unbegun");
    let unended = number(&report, "losses.unended");
    // An interrupt's beginning or end, missed in the middle of our programs, may leave the other one over.
    assert!(unbegun + unended <= nested, "{}", output.stderr);
    let missed = hold_against_perf(&report, &script, &fighters);
    // Interrupts in the middle of our programs are counted as such, their beginnings and their ends.
    assert!(
        missed <= nested,
        "{what}: {missed} missed, {nested} nested: {}",
        output.stderr
    );
    locks(&report)[0].clone()
}

#[test]
fn waits_for_one_memory_map_are_perfs() {
    let Some(_machine) = alone() else {
        return;
    };
    let lock = compare("maps", 1_500);
    assert_eq!(lock["class"], "rwsem");
    let name = lock["name"].as_str().expect("text");
    assert!(name.starts_with("mmap_lock of fight "), "{lock}");
}

#[test]
fn waits_for_one_directory_are_perfs() {
    let Some(_machine) = alone() else {
        return;
    };
    let lock = compare("names", 4_000);
    assert_eq!(lock["class"], "rwsem");
    let name = lock["name"].as_str().expect("text");
    assert!(name.starts_with("i_rwsem of dir place on "), "{lock}");
}

#[test]
fn waits_for_one_pipe_are_perfs() {
    let Some(_machine) = alone() else {
        return;
    };
    let lock = compare("bytes", 400_000);
    assert_eq!(lock["class"], "mutex");
    let name = lock["name"].as_str().expect("text");
    assert!(name.starts_with("pipe:["), "{lock}");
}
