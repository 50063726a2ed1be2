//! why without a target, and how long its waits took: against programs that log both.

use std::collections::HashSet;

use crate::prelude::*;
use crate::why::{ALL, assert_explained, kind_ns, line, lines};

/// Threads that wait for one lock, held by the one that naps, and one that computes, for so many ms. They are made and end within that.
const CONTENDERS: &str = r#"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long long end_ns, waited_ns;

__attribute__((noinline)) void await_turn(void)
{
	WITH_FRAME;
	pthread_mutex_lock(&lock);
}

static void *contend(void *unused)
{
	long long before, sum = 0;

	while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
		before = clock_ns(CLOCK_MONOTONIC);
		await_turn();
		sum += clock_ns(CLOCK_MONOTONIC) - before;
		pause_ns(3000000);
		pthread_mutex_unlock(&lock);
	}
	__atomic_fetch_add(&waited_ns, sum, __ATOMIC_SEQ_CST);
	return unused;
}

static void *compute(void *unused)
{
	while (clock_ns(CLOCK_MONOTONIC) < end_ns)
		for (int i = 0; i < 100000; i++)
			__asm__ volatile("" : "+r"(i));
	return unused;
}

int main(int argc, char **argv)
{
	int n = atoi(argv[1]);
	long long cpu_ns;
	pthread_t threads[n];

	ready();
	cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	end_ns = clock_ns(CLOCK_MONOTONIC) + atoll(argv[2]) * 1000000;
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, i ? contend : compute, NULL))
			_exit(3);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	say("{\"waited_ns\": %lld, \"cpu_ns\": %lld}\n", waited_ns, cpu_ns);
	return finished();
}
"#;

/// Time that a clock around a wait also has: ready without a CPU, and on one.
fn beside_ns(report: &Value) -> u64 {
    let kinds = ["run-queue", "on-cpu", "unseen", "lost"];
    kinds.map(|kind| kind_ns(report, kind)).iter().sum()
}

/// A report on contenders has what they have logged.
fn assert_contenders(report: &Value, result: &Value, threads: u64) {
    // A thread's end may be hidden.
    let seen = threads.saturating_sub(number(report, "losses.out_of_order"));
    assert_within("threads", number(report, "threads"), seen..=threads, report);
    assert_explained(report);
    let told = number(result, "waited_ns");
    let found = number(line(report, "futex", "await_turn"), "ns");
    let bounds = told.saturating_sub(beside_ns(report))..=told;
    assert_within("waits for the lock, ns", found, bounds, report);
    let told = number(result, "cpu_ns");
    let percent = number(report, "lifetime_ns") / 100;
    let bounds = told.saturating_sub(percent)..=told + percent;
    assert_within("on CPU, ns", kind_ns(report, "on-cpu"), bounds, report);
    let function = text(&list(lines(report, "on-cpu")[0], "culprits")[0], "function");
    assert_eq!(function, "compute", "{report:#}");
    let processes = lines(report, "futex");
    let processes = processes.iter().flat_map(|line| list(line, "processes"));
    let pids: HashSet<u64> = processes.map(|process| number(process, "pid")).collect();
    assert_eq!(pids.len(), 1, "{report:#}");
}

#[test]
fn without_a_target_it_is_the_process_that_loses_most_with_the_figures_that_it_has_as_a_target() {
    let _machine = Machine::alone();
    let contenders =
        |name: &str, args: &str| Program::c(name, CONTENDERS, "-pthread").started(args);
    let (report, results) = traced("why", ALL, contenders("loser", "40 1500"));
    assert_contenders(&report, &results[0], 41);
    assert_eq!(report["chosen"], Value::Null);

    // The one that computes and the one with many idle threads lose nothing.
    let mut loser = contenders("loser", "40 1500");
    let mut second = contenders("second", "16 1500");
    let _idle = Program::c("sleepers", crate::budget::SLEEPERS, "-pthread").started("");
    let (output, results) = during("why", format!("-j {ALL}"), || {
        loser.go();
        second.go();
        (loser.results(), second.results())
    });
    let report = output.report();
    assert_contenders(&report, &results.0[0], 41);
    let chosen = &report["chosen"];
    let who = ["pid", "second.pid"].map(|field| number(chosen, field));
    assert_eq!(
        who,
        [u64::from(loser.pid()), u64::from(second.pid())],
        "{chosen}"
    );
    let beside = beside_ns(&report);
    let told = number(&results.0[0], "waited_ns");
    // Its first thread waits for the others.
    let window_ns = number(&report, "end_ns") - number(&report, "start_ns");
    let bounds = told.saturating_sub(beside)..=told + beside + window_ns;
    assert_within("lost, ns", number(chosen, "ns"), bounds, chosen);
    let both = number(chosen, "ns") + number(chosen, "second.ns");
    assert!(number(chosen, "all_ns") >= both, "{chosen}");

    let (output, _) = during("why", format!("-j --all {ALL}"), || ());
    let report = output.report();
    assert_eq!(report["chosen"], Value::Null);
    assert!(
        number(&report, "threads") > 4000,
        "the sleepers are of the machine"
    );
    for workload in [loser, second] {
        workload.finish();
    }
}

#[test]
fn without_a_target_it_is_the_name_whose_processes_lose_most_together() {
    let _machine = Machine::alone();
    let start = |name: &str, args: &str| Program::c(name, CONTENDERS, "-pthread").started(args);
    // Each of them loses less than the other one does.
    let mut losers: Vec<Workload> = (0..3).map(|_| start("loser", "6 1500")).collect();
    let mut second = start("second", "10 1500");
    let (output, told) = during("why", format!("-j {ALL}"), || {
        losers
            .iter_mut()
            .chain([&mut second])
            .for_each(Workload::go);
        let waited = |one: &mut Workload| number(&one.results()[0], "waited_ns");
        let told: Vec<u64> = losers.iter_mut().map(waited).collect();
        (told, waited(&mut second))
    });
    let report = output.report();
    let told_ns: u64 = told.0.iter().sum();
    assert!(
        told.0.iter().all(|one| *one < told.1) && told_ns > told.1,
        "{told:?}"
    );
    let chosen = &report["chosen"];
    assert_eq!(
        (text(chosen, "comm"), number(chosen, "processes")),
        ("loser", 3)
    );
    let other = &chosen["second"];
    assert_eq!(
        (text(other, "comm"), number(other, "processes")),
        ("second", 1)
    );
    assert_within("threads", number(&report, "threads"), 20..=21, &report);
    assert_explained(&report);

    // Each has a lock of its own, and each lock a line.
    let mut of_locks = lines(&report, "futex");
    of_locks.retain(|line| text(line, "place") == "await_turn");
    let found_ns = sum(of_locks.iter().copied(), "ns");
    let bounds = told_ns.saturating_sub(beside_ns(&report))..=told_ns;
    assert_within("waits for locks, ns", found_ns, bounds, &report);
    let processes = of_locks.iter().flat_map(|line| list(line, "processes"));
    let found: HashSet<u64> = processes.map(|one| number(one, "pid")).collect();
    let pids: HashSet<u64> = losers.iter().map(|one| u64::from(one.pid())).collect();
    assert_eq!((found, of_locks.len()), (pids, 3), "{report:#}");
    for workload in losers.into_iter().chain([second]) {
        workload.finish();
    }
}

/// Answers that a thread reads from a pipe: of 200 most come within a millisecond, four after 40 ms. Its log is by the clock around a
/// read: the 198th of them in order is the 99th percentile.
const ANSWERS: &str = r#"
#include <pthread.h>

#define ANSWERS 200

static int pipe_ends[2];
static volatile int reader;
static int asked;

static void *answer_late(void *unused)
{
	for (int i = 0; i < ANSWERS; i++) {
		while (__atomic_load_n(&asked, __ATOMIC_SEQ_CST) <= i)
			usleep(100);
		await_call(&reader, SYS_read);
		pause_ns(i % 50 == 17 ? 40000000 : 500000 + i % 7 * 50000);
		if (write(pipe_ends[1], &i, sizeof(i)) != sizeof(i))
			_exit(3);
	}
	return unused;
}

__attribute__((noinline)) void await_answer(void)
{
	int answer;

	WITH_FRAME;
	if (read(pipe_ends[0], &answer, sizeof(answer)) != sizeof(answer))
		_exit(4);
}

static int by_size(const void *one, const void *other)
{
	long long a = *(const long long *)one, b = *(const long long *)other;

	return (a > b) - (a < b);
}

int main(void)
{
	long long waits[ANSWERS];
	pthread_t partner;

	ready();
	reader = gettid();
	if (pipe(pipe_ends) || pthread_create(&partner, NULL, answer_late, NULL))
		_exit(5);
	for (int i = 0; i < ANSWERS; i++) {
		long long before = clock_ns(CLOCK_MONOTONIC);

		__atomic_fetch_add(&asked, 1, __ATOMIC_SEQ_CST);
		await_answer();
		waits[i] = clock_ns(CLOCK_MONOTONIC) - before;
	}
	pthread_join(partner, NULL);
	qsort(waits, ANSWERS, sizeof(waits[0]), by_size);
	say("{\"waits\": %d, \"p99_ns\": %lld, \"middle_ns\": %lld}\n", ANSWERS, waits[197], waits[99]);
	return finished();
}
"#;

/// The pause before the late ones.
const LATE_NS: u64 = 40_000_000;

#[test]
fn one_wait_of_a_hundred_is_as_long_as_the_program_logs() {
    let _machine = Machine::alone();
    let workload = Program::c("answers", ANSWERS, "-pthread").started("");
    let (report, results) = traced("why", ALL, workload);
    let told = number(&results[0], "p99_ns");
    // Four answers pause for as long once the reader is asleep.
    assert!(told >= LATE_NS, "{results:?}");
    let line = line(&report, "pipe", "await_answer");
    let waits = number(&results[0], "waits");
    // A kernel that shields some tasks may hide both ends of a wait. One long wait may be missing, too: p99 stays among them.
    let seen = waits - waits / 50;
    assert_within("waits", number(line, "waits"), seen..=waits, &report);
    // The clock around it also has the way back to a CPU.
    let most = told + told * 32 / 1000;
    let least = told - told * 32 / 1000;
    let least = least.saturating_sub(kind_ns(&report, "run-queue"));
    let found = number(line, "p99_ns");
    assert_within("p99, ns", found, least..=most, &report);
    // A busy machine makes all of them late.
    let middle = number(&results[0], "middle_ns");
    assert!(found > middle || told < 2 * middle, "{results:?}: {line:#}");
    let none = lines(&report, "on-cpu")[0];
    assert_eq!(none["p99_ns"], Value::Null, "{none:#}");
}

#[test]
fn the_longest_of_waits_for_a_cpu_are_those_that_runqlat_has() {
    let _machine = Machine::alone();
    let mut workload = Workload::spinners(4, 2);
    let options = format!("-j -p {}", workload.pid());
    let queue = Tool::attached("runqlat", &options[..]);
    let (output, _) = during("why", format!("{options} {ALL}"), || workload.work());
    let (own, alone) = (output.report(), queue.end().report());
    workload.finish();
    let line = lines(&own, "run-queue")[0];
    let found = number(line, "p99_ns");
    let group = &list(&alone, "groups")[0];
    // Each has waits of the thread that starts and ends the others that the other one has not, beside those of an edge.
    let (own, all) = (number(line, "waits"), number(group, "count"));
    let apart = own.abs_diff(all) + 2;
    assert_within("waits", own, all - all / 20..=all + all / 20, line);
    let count = |is_in: fn(u64, u64, u64) -> bool| -> u64 {
        let buckets = list(group, "buckets").iter();
        let numbers = buckets.map(|bucket| [0, 1, 2].map(|at| bucket[at].as_u64().unwrap()));
        let inside = numbers.filter(|[lower, upper, _]| is_in(found, *lower, *upper));
        inside.map(|[.., waits]| waits).sum()
    };
    let longer = count(|found, lower, _| lower > found);
    let as_long = count(|found, _, upper| upper >= found);
    assert_within("waits beyond p99", longer, 0..=all / 100 + apart, group);
    let least = (all / 100).saturating_sub(apart);
    assert_within("waits from p99 on", as_long, least..=all, group);
}
