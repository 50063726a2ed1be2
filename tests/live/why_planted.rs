//! why against programs with several planted causes, whose shares they log.

use std::fs;

use crate::cgroup::Cgroup;
use crate::prelude::*;
use crate::why::{ALL, assert_explained, first_culprit, kind_ns, line, lines};

/// A client of a slow peer, which is another process, a thread that reads a file again and again through pages that are taken from it, one
/// that sleeps and one that computes. Each begins when it is told to, and logs by its own clocks.
const PLANTED: &str = r#"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#define ROUNDS 15
#define NAP 30000000

static int peer_port, peer_pid;
/* Memory that the peer shares. */
static long long *socket_ns;
static long long end_ns, fault_ns, sleep_ns, compute_ns, lack_ns, taken_ns;
static volatile char sum;
static char *pages;
static long bytes;

/* Time that is neither on a CPU nor waited for one. */
static long long waited_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC) - clock_ns(CLOCK_THREAD_CPUTIME_ID) - schedstat(1);
}

/* Time that interrupts and the hypervisor have taken from the CPUs. Clocks of threads leave it out, though their threads are on CPUs. */
static long long taken_from_cpus(void)
{
	long long ticks[8] = { 0 };
	FILE *stat = fopen("/proc/stat", "r");

	if (!stat || fscanf(stat, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4],
			    &ticks[5], &ticks[6], &ticks[7]) != 8)
		_exit(6);
	fclose(stat);
	return (ticks[5] + ticks[6] + ticks[7]) * (1000000000 / sysconf(_SC_CLK_TCK));
}

/* Time that this thread lacked a CPU, a quota's part of it, too. */
static void lacked(void)
{
	__atomic_fetch_add(&lack_ns, schedstat(1), __ATOMIC_SEQ_CST);
}

__attribute__((noinline)) static void think(void)
{
	pause_ns(NAP);
	WITH_FRAME;
}

static void peer(int listener)
{
	int client = accept(listener, NULL, NULL);
	long long asked_ns;

	while (read(client, &asked_ns, sizeof(asked_ns)) == sizeof(asked_ns)) {
		think();
		*socket_ns += clock_ns(CLOCK_MONOTONIC) - asked_ns;
		put_byte(client, '!');
	}
	_exit(0);
}

static void start_peer(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (listener < 0 || bind(listener, (void *)&at, length) || listen(listener, 1) ||
	    getsockname(listener, (void *)&at, &length))
		_exit(3);
	peer_port = at.sin_port;
	peer_pid = fork();
	if (peer_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "slowpeer");
		peer(listener);
	}
	close(listener);
}

__attribute__((noinline)) static void await_peer(int fd)
{
	take_byte(fd);
	WITH_FRAME;
}

static void *ask(void *unused)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = peer_port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	long long now;

	if (connect(fd, (void *)&at, sizeof(at)) || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		_exit(4);
	for (int i = 0; i < ROUNDS; i++) {
		now = clock_ns(CLOCK_MONOTONIC);
		if (write(fd, &now, sizeof(now)) != sizeof(now))
			_exit(7);
		await_peer(fd);
	}
	close(fd);
	lacked();
	return unused;
}

__attribute__((noinline)) static void touch(long at)
{
	sum += pages[at];
	WITH_FRAME;
}

static void *fault(void *unused)
{
	long long begin = waited_ns();

	for (long at = 0; clock_ns(CLOCK_MONOTONIC) < end_ns; at = (at + 4096) % bytes)
		touch(at);
	fault_ns = waited_ns() - begin;
	lacked();
	return unused;
}

static void *nap(void *unused)
{
	long long begin = waited_ns();

	while (clock_ns(CLOCK_MONOTONIC) < end_ns)
		pause_ns(10000000);
	sleep_ns = waited_ns() - begin;
	lacked();
	return unused;
}

__attribute__((noinline)) static void compute(long long until_ns)
{
	while (clock_ns(CLOCK_MONOTONIC) < until_ns)
		for (int i = 0; i < 100000; i++)
			__asm__ volatile("" : "+r"(i));
	WITH_FRAME;
}

static void *turn(void *part)
{
	long long begin = clock_ns(CLOCK_MONOTONIC);

	compute(begin + (end_ns - begin) / 100 * (long)part);
	lacked();
	return NULL;
}

int main(int argc, char **argv)
{
	void *(*all[])(void *) = { ask, nap, turn, fault };
	int n = argc > 3 ? 4 : 3;
	long long begin_ns;
	pthread_t threads[4];

	socket_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	start_peer();
	if (n == 4) {
		/* Others on this machine are not planted. */
		setpriority(PRIO_PROCESS, 0, -20);
		int fd = open(argv[3], O_RDONLY);

		bytes = lseek(fd, 0, SEEK_END);
		pages = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
		/* Pages are a group's who read them. */
		if (pages == MAP_FAILED || madvise(pages, bytes, MADV_RANDOM) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
			_exit(5);
	}
	ready();
	/* Only what it lacks from now on is traced. */
	lack_ns = -schedstat(1);
	taken_ns = taken_from_cpus();
	begin_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	end_ns = clock_ns(CLOCK_MONOTONIC) + atoll(argv[1]) * 1000000;
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, all[i], (void *)atol(argv[2])))
			_exit(3);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	compute_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_ns;
	taken_ns = taken_from_cpus() - taken_ns;
	lacked();
	say("{\"peer\": %d, \"socket_ns\": %lld, \"fault_ns\": %lld, \"sleep_ns\": %lld, \"compute_ns\": %lld, \"lack_ns\": %lld, \"taken_ns\": %lld}\n",
	    peer_pid, *socket_ns, fault_ns, sleep_ns, compute_ns, lack_ns, taken_ns);
	return finished();
}
"#;

/// A report, its sentences, and what the program has logged.
fn planted(workload: &mut Workload) -> (Value, String, Value) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("why.json");
    let options = format!("--brief -o {} {ALL}", file.display());
    let (output, results) = observed("why", &options, workload);
    let answer = text(&output.report(), "answer").to_owned();
    let report = fs::read_to_string(&file).expect("a file");
    let report = serde_json::from_str(&report).expect("JSON");
    assert_explained(&report);
    (report, answer, results[0].clone())
}

/// A share of all time is the log's within two points.
fn assert_share(report: &Value, what: &str, found_ns: u64, told_ns: u64) {
    let two_points = number(report, "lifetime_ns") / 50;
    let bounds = told_ns.saturating_sub(two_points)..=told_ns + two_points;
    assert_within(format!("{what}, ns"), found_ns, bounds, report);
}

/// The log's causes that both mixtures have.
fn assert_common(report: &Value, told: &Value) {
    let wait = line(report, "socket", "await_peer");
    let (peer, _) = first_culprit(wait);
    assert_eq!(text(peer, "comm"), "slowpeer", "{wait:#}");
    assert_eq!(number(peer, "pid"), number(told, "peer"), "{wait:#}");
    // An interrupt that comes as the peer sends delivers what it has sent: one of 15 answers is 7 %.
    let others = list(wait, "culprits").iter().skip(1);
    for other in others {
        assert_eq!(other["interrupt"], true, "{wait:#}");
    }
    assert_share(
        report,
        "socket",
        number(wait, "ns"),
        number(told, "socket_ns"),
    );
    let sleep_ns = kind_ns(report, "sleep");
    assert_share(report, "sleep", sleep_ns, number(told, "sleep_ns"));
}

#[test]
fn a_slow_peer_is_named_beside_page_faults_of_a_group_short_of_memory() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir_in(".").expect("a directory");
    let file = dir.path().join("pages");
    fs::write(&file, vec![1; 96 << 20]).expect("a file");
    fs::File::open(&file)
        .and_then(|file| file.sync_all())
        .expect("written");
    let args = format!("1500 20 {}", file.display());
    let mut workload = Program::c("planted", PLANTED, "-pthread").started(&args[..]);
    let limit = Cgroup::short_of_memory(workload.pid(), 24 << 20);
    let (report, answer, told) = planted(&mut workload);
    drop(limit);
    workload.finish();
    assert_common(&report, &told);
    let faults = kind_ns(&report, "page-fault");
    // A disk's interrupts take time from its CPU that is a wait by the thread's clock, and none by the scheduler's.
    let (waited, taken) = (number(&told, "fault_ns"), number(&told, "taken_ns"));
    assert_share(
        &report,
        "page faults",
        faults,
        faults.clamp(waited.saturating_sub(taken), waited),
    );
    let lacked = kind_ns(&report, "run-queue");
    assert_share(&report, "lacked", lacked, number(&told, "lack_ns"));
    // Two may be as large as each other but for what is allowed.
    let peer = number(line(&report, "socket", "await_peer"), "ns");
    let causes = [
        (faults, "was spent waiting in page faults in touch"),
        (peer, "was spent waiting on sockets in await_peer"),
        (lacked, "was spent waiting for a CPU"),
        (kind_ns(&report, "on-cpu"), "went by on CPUs"),
    ];
    let (_, words) = causes.iter().max().expect("four causes");
    assert!(answer.contains(words), "{words}: {told}: {answer}");
}

#[test]
fn a_quota_that_is_used_up_is_named_beside_a_slow_peer() {
    let _machine = Machine::alone();
    let mut workload = Program::c("planted", PLANTED, "-pthread").started("1500 100");
    let quota = Cgroup::short_of_cpu(workload.pid());
    let before = quota.throttled_periods();
    let (report, answer, told) = planted(&mut workload);
    let most = quota.throttled_periods() - before;
    let path = quota.path().to_owned();
    drop(quota);
    workload.finish();
    assert_common(&report, &told);
    // By the kernel's account for the threads, which does not tell want of quota from other waits for a CPU.
    let lacked = kind_ns(&report, "throttled") + kind_ns(&report, "run-queue");
    assert_share(&report, "lacked", lacked, number(&told, "lack_ns"));
    let throttled = lines(&report, "throttled");
    assert_eq!(throttled.len(), 1, "{report:#}");
    let named = only(&report, "quotas");
    assert_eq!(named["cgroup"], path, "{named}");
    assert_within("periods", number(named, "used_up"), 10..=most, named);
    for words in ["was spent waiting for CPU quota", &path] {
        assert!(answer.contains(words), "{words}: {answer}");
    }
}
