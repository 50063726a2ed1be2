//! why within a budget: no wait in its short looks is lost, however many threads there are.

use crate::prelude::*;
use crate::why::{kind_ns, line};

/// Threads of a server that has one for each request: they wait by turns, for some ms, as long as told.
const NAPPERS: &str = r#"
#include <pthread.h>

static long long end_ns;

__attribute__((noinline)) void nap(void)
{
	WITH_FRAME;
	pause_ns(4000000);
}

static void *serve(void *unused)
{
	while (clock_ns(CLOCK_MONOTONIC) < end_ns)
		nap();
	return unused;
}

int main(int argc, char **argv)
{
	int n = atoi(argv[1]);
	pthread_t threads[n];

	ready();
	end_ns = clock_ns(CLOCK_MONOTONIC) + atoll(argv[2]) * 1000000;
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, serve, NULL))
			_exit(3);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	say("{\"threads\": %d}\n", n);
	return finished();
}
"#;

/// Walks of all their stacks take longer than the waits.
#[test]
fn waits_that_begin_while_a_window_opens_are_not_lost() {
    let _machine = Machine::alone();
    let nappers = Program::c("nappers", NAPPERS, "-pthread").started("200 6000");
    let (report, _) = traced("why", "--max-overhead 5 100", nappers);
    let budget = &report["cost"]["budget"];
    assert_within("windows", number(budget, "windows"), 2.., &report);
    assert_eq!(number(&report, "losses.unreported"), 0, "{report:#}");
    assert_eq!(kind_ns(&report, "lost"), 0, "{report:#}");
    // All that a thread does is to nap: the rest is a CPU, and the wait for one.
    let beside: u64 = ["run-queue", "on-cpu", "unseen"]
        .iter()
        .map(|kind| kind_ns(&report, kind))
        .sum();
    let naps = number(line(&report, "sleep", "nap"), "ns");
    let rest = number(&report, "lifetime_ns").saturating_sub(naps + beside);
    // The one that made them waits for their end.
    let few = number(&report, "lifetime_ns") / 100;
    assert_within("neither, ns", rest, ..=few, &report);
}
