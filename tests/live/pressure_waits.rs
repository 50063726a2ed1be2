//! Rows of pressure of waits for what is no resource: locks, and CPU quotas.

use crate::budget::SLEEPERS;
use crate::cgroup::Cgroup;
use crate::prelude::*;
use crate::pressure::party;
use crate::shortages::{DISK, program};

/// Three threads that take the same lock in turns, for 20 ms each: two of them wait at any time. By a word: `flock`, `mutex`, `pshared`
/// (a mutex that processes share), `sysv`, `unnamed` (a POSIX semaphore); for two seconds, or as many as it is told.
const QUEUE: &str = r#"
#include <pthread.h>
#include <semaphore.h>
#include <sys/file.h>
#include <sys/sem.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *path, *kind;
static sem_t semaphore;
static int set, seconds, is_mutex;

static void take(int file)
{
	struct sembuf down = { 0, -1, 0 };

	if (kind[0] == 'f' ? flock(file, LOCK_EX) : kind[0] == 'u' ? sem_wait(&semaphore) :
	    is_mutex ? pthread_mutex_lock(&mutex) : semop(set, &down, 1))
		_exit(3);
}

static void release(int file)
{
	struct sembuf up = { 0, 1, 0 };

	if (kind[0] == 'f' ? flock(file, LOCK_UN) : kind[0] == 'u' ? sem_post(&semaphore) :
	    is_mutex ? pthread_mutex_unlock(&mutex) : semop(set, &up, 1))
		_exit(4);
}

static void *queue(void *arg)
{
	struct timespec hold = { .tv_nsec = 20000000 }, pause = { .tv_nsec = 1000000 };
	long long end = clock_ns(CLOCK_MONOTONIC) + seconds * 1000000000LL;
	int file = open(path, O_RDWR | O_CREAT, 0600);

	while (clock_ns(CLOCK_MONOTONIC) < end) {
		take(file);
		nanosleep(&hold, NULL);
		release(file);
		/* Or it would have the lock again before another is awake. */
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[3];
	pthread_mutexattr_t of_mutex;
	int is_sysv, one = 1;

	path = argv[1];
	kind = argv[2];
	seconds = argc > 3 ? atoi(argv[3]) : 2;
	/* There are not many sets on a machine, and one outlives who is killed. */
	is_sysv = kind[0] == 's';
	sem_init(&semaphore, 0, 1);
	is_mutex = kind[0] == 'm' || kind[0] == 'p';
	pthread_mutexattr_init(&of_mutex);
	if (kind[0] == 'p' && (pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED) || pthread_mutex_init(&mutex, &of_mutex)))
		_exit(6);
	if (is_sysv && ((set = semget(IPC_PRIVATE, 1, 0600)) < 0 || semctl(set, 0, SETVAL, one)))
		_exit(5);
	ready();
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, queue, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	if (is_sysv)
		semctl(set, 0, IPC_RMID);
	say("{}\n");
	finished();
	unlink(path);
	return 0;
}
"#;

#[test]
fn threads_that_queue_for_a_lock_are_counted_and_it_is_said_for_which_kind() {
    let _machine = Machine::alone();
    for (kind, reason, words, next) in [
        ("flock", "file-lock", "file locks", "lockstat -p"),
        ("mutex", "futex", "locks", "lockstat -p"),
        ("pshared", "futex", "locks", "lockstat -p"),
        ("sysv", "semaphore", "semaphores", "lockstat -p"),
    ] {
        let (mut workload, _dir) = program(QUEUE, "queue", kind);
        let pid = workload.pid();
        let tool = Tool::attached("pressure", format!("-p {pid}"));
        let json = Tool::attached("pressure", format!("-j -p {pid}"));
        workload.work();
        let (report, text) = (json.end().report(), tool.end().stdout);
        workload.finish();
        let rows = list(&report, "waits.not_idle").iter();
        // Its first thread waits in the pipe that it is told by.
        let own = rows.filter(|row| row["pid"] == pid && row["reason"] == reason);
        let own: Vec<&Value> = own.collect();
        let [row] = own[..] else {
            panic!("{kind}: {own:?}, of {report}")
        };
        assert_eq!(row["lock"], true, "{row}");
        assert_eq!(number(row, "threads"), 3, "{row}");
        assert!(number(&report, "waits.looks") >= 3, "{report}");
        let at_a_time = row["at_a_time"].as_f64().expect("a number");
        // One of the three has it, and there are looks before they begin.
        assert_within(kind, at_a_time, 1.0..=2.0, row);
        assert!(
            text.contains(&format!("queue {pid} waits for {words} (")),
            "{kind}: {text}"
        );
        let next = format!("{next} {pid} 10");
        assert!(text.contains(&next), "no {next}: {text}");
        let command = row["next"]["command"].as_str();
        assert_eq!(command, Some(next.as_str()), "{row}");
    }
}

/// Nobody can tell from one look that it is a lock; whoever sees who posts can.
#[test]
fn threads_that_take_turns_by_a_posix_semaphore_lead_to_lockstat_which_knows() {
    let _machine = Machine::alone();
    let (mut workload, _dir) = program(QUEUE, "queue", "unnamed");
    let pid = workload.pid();
    let text = Tool::attached("pressure", format!("-p {pid}"));
    let json = Tool::attached("pressure", format!("-j -p {pid}"));
    let lockstat = Tool::attached("lockstat", format!("-j -U -p {pid}"));
    workload.work();
    let (text, report) = (text.end().stdout, json.end().report());
    let locks = lockstat.end().report();
    workload.finish();
    let rows = list(&report, "waits.undecided").iter();
    let of_queue: Vec<&Value> = rows.filter(|row| row["pid"] == pid).collect();
    let [row] = of_queue[..] else {
        panic!("{report}")
    };
    // Its first thread, which joins the others, waits for a futex, too, and may have moved.
    let threads = number(row, "threads");
    assert_within("threads", threads, 3..=4, row);
    let at_a_time = row["at_a_time"].as_f64().expect("a number");
    assert_within("at a time", at_a_time, 1.0..=(threads - 1) as f64, row);
    assert!(
        text.contains("threads at a time wait for a futex:\n    for work, or for a lock"),
        "{text}"
    );
    let next = format!("lockstat -p {pid} 10");
    assert!(text.contains(&next), "no {next}: {text}");
    assert_eq!(row["next"]["command"].as_str(), Some(next.as_str()));
    let first = &list(&locks, "locks")[0];
    assert_eq!(first["class"], "sem", "{locks:#}");
}

/// Its first thread joins another, and a third waits for it as glibc's pthread_join does from 2.43 on: for a word that processes may
/// share and that holds 2, with the clock of the day and no timeout. Both say how long that took.
const JOIN: &str = r#"
#include <linux/futex.h>
#include <pthread.h>
static unsigned int joinable = 2;

static void *ends_late(void *arg)
{
	for (int i = 0; i < 20; i++)
		pause_ns(100000000);
	__atomic_store_n(&joinable, 0, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &joinable, FUTEX_WAKE, 1, NULL, NULL, 0);
	return NULL;
}

static void *joins(void *arg)
{
	int operation = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME;

	while (__atomic_load_n(&joinable, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &joinable, operation, 2, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
	/* A thread that waits once and ends may have had something to do. */
	for (;;)
		pause();
}

int main(void)
{
	pthread_t late, other;
	long long began;

	ready();
	began = clock_ns(CLOCK_MONOTONIC);
	pthread_create(&late, NULL, ends_late, NULL);
	pthread_create(&other, NULL, joins, NULL);
	pthread_join(late, NULL);
	say("{\"waited_ns\": %lld}\n", clock_ns(CLOCK_MONOTONIC) - began);
	return finished();
}
"#;

#[test]
fn threads_that_join_others_wait_for_no_lock() {
    let _machine = Machine::alone();
    let mut workload = Program::c("join", JOIN, "").started("");
    let pid = workload.pid();
    let pressure = Tool::attached("pressure", format!("-j -p {pid}"));
    let offcputime = Tool::attached("offcputime", format!("-j -p {pid}"));
    let lockstat = Tool::attached("lockstat", format!("-j -U -p {pid}"));
    workload.go();
    let results = workload.results();
    let reports = [pressure, offcputime, lockstat].map(|tool| tool.end().report());
    let [pressure, offcputime, lockstat] = reports;
    workload.finish();
    let waited_ns = number(&results[0], "waited_ns");
    assert!(number(&pressure, "waits.looks") >= 3, "{pressure}");
    // Its first thread waits in the pipe that it is told by.
    let mut rows = list(&pressure, "waits.not_idle").iter();
    assert_eq!(rows.find(|row| row["reason"] == "futex"), None);
    let stacks = list(&offcputime, "stacks").iter();
    let joins: Vec<&Value> = stacks.filter(|stack| stack["reason"] == "futex").collect();
    // Both until they are woken, but for the time until the second one has begun.
    let idle = joins.iter().filter(|stack| stack["idle"] == true);
    let idle_ns: u64 = idle.map(|stack| number(stack, "values.0")).sum();
    assert_within(
        "idle",
        idle_ns,
        waited_ns * 19 / 10..=waited_ns * 2,
        &offcputime,
    );
    let all_ns: u64 = joins.iter().map(|stack| number(stack, "values.0")).sum();
    let busy_ns = all_ns - idle_ns;
    assert!(busy_ns < waited_ns / 100, "{busy_ns}: {offcputime}");
    assert_eq!(list(&lockstat, "locks"), &[] as &[Value]);
}

/// Thousands of sleepers, and among them a process whose threads queue for a mutex and one that reads from a slow disk, for so many
/// seconds from the word.
struct Crowded {
    crowd: Workload,
    queue: Workload,
    reader: Workload,
    _disk: Cgroup,
    _programs: [Program; 3],
}

impl Crowded {
    fn new(seconds: u32) -> Self {
        let (crowd, of_crowd) = program(SLEEPERS, "crowd", "5000");
        let (queue, of_queue) = program(QUEUE, "queue", &format!("mutex {seconds}"));
        let (reader, of_reader) = program(DISK, "reader", &format!("read {seconds}"));
        Self {
            _disk: Cgroup::on_a_slow_disk(reader.pid(), of_reader.dir()),
            crowd,
            queue,
            reader,
            _programs: [of_crowd, of_queue, of_reader],
        }
    }

    fn go(&mut self) {
        self.queue.go();
        self.reader.go();
    }

    /// Looks whether both that wait are in a report.
    fn are_seen(&self, report: &Value) -> bool {
        let both = [(&self.queue, "futex"), (&self.reader, "block-io")];
        both.iter().all(|(workload, reason)| {
            let is_its = |row: &Value| row["pid"] == workload.pid() && row["reason"] == *reason;
            list(report, "waits.not_idle").iter().any(is_its)
        })
    }
}

/// One interval or the other shows it, which this waits for.
#[test]
fn among_thousands_of_sleepers_who_waits_is_seen_and_the_unseen_are_counted() {
    let _machine = Machine::alone();
    let mut crowded = Crowded::new(3600);
    let often = Tool::attached("pressure", "-j 300ms");
    let of_crowd = Tool::attached("pressure", format!("-j -p {} 1", crowded.crowd.pid()));
    crowded.go();
    often.wait_reporting("who waits", |report| crowded.are_seen(report));
    // A first round may see all of them; a hundredth of a CPU is too little for that in 300 ms.
    let missed = |report: &Value| number(report, "waits.not_looked_at");
    often.wait_reporting("the unseen", |report| missed(report) >= 1_000);
    of_crowd.wait_reporting("looks", |report| number(report, "waits.looks") > 0);
    often.end();
    of_crowd.end();
}

/// A report of two seconds is long enough.
#[test]
#[ignore = "statistical: make truth"]
fn among_thousands_of_sleepers_who_waits_for_two_seconds_is_seen() {
    let _machine = Machine::alone();
    let mut crowded = Crowded::new(2);
    let whole = Tool::attached("pressure", "-j");
    let of_crowd = Tool::attached("pressure", format!("-j -p {}", crowded.crowd.pid()));
    crowded.go();
    crowded.queue.results();
    crowded.reader.results();
    let (whole, of_crowd) = (whole.report(), of_crowd.report());
    assert!(crowded.are_seen(&whole), "{whole}");
    for report in [whole, of_crowd] {
        assert!(number(&report, "waits.looks") > 1, "{report}");
    }
}

/// Nobody else has to want the CPU.
#[test]
fn a_quota_that_is_used_up_is_named_with_its_group_and_no_neighbour_is() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(2, 2);
    let pid = workload.pid();
    let cgroup = Cgroup::short_of_cpu(pid);
    let before = cgroup.throttled_periods();
    let text = Tool::attached("pressure", format!("-p {pid}"));
    let json = Tool::attached("pressure", format!("-j -p {pid}"));
    workload.work();
    let (text, report) = (text.end().stdout, json.end().report());
    let most = cgroup.throttled_periods() - before;
    let path = cgroup.path().to_owned();
    workload.finish();
    let name = path.rsplit('/').next().expect("a name");
    let verdict = text.lines().next().expect("a verdict");
    assert!(
        verdict.contains(&format!("short of CPU quota of {name} (")),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "for want of CPU quota of {path}:\n  5.00 ms per 50.0 ms, used up in "
        )),
        "{text}"
    );
    // Processes of that name may run beside it.
    let mut next = text.lines().filter(|line| line.contains("next: "));
    assert!(!next.any(|line| line.contains("runqlat")), "{text}");
    // Its reason is left out where the path to the tool makes the line too long.
    let profile = crate::built("profile");
    let is_said =
        |target: String| text.contains(&format!("next: {} {target} 10", profile.display()));
    // A group of v2 is a target.
    assert!(
        is_said(format!("-p {pid}")) || is_said(format!("--cgroup {path}")),
        "{text}"
    );
    let cpu = &report["resources"]["cpu"];
    let [quota] = list(cpu, "quotas") else {
        panic!("{cpu}")
    };
    assert_eq!(quota["cgroup"], path.as_str());
    assert_eq!(number(quota, "quota_ns"), 5_000_000);
    assert_eq!(number(quota, "period_ns"), 50_000_000);
    assert_within("periods", number(quota, "used_up"), 10..=most, quota);
    // Both threads wait for it most of the time, which is no more than they lost.
    let lost = number(party(&report, "cpu", "victims", pid), "lost_ns");
    assert!(number(cpu, "throttled_ns") >= lost / 2, "{cpu}");
}
