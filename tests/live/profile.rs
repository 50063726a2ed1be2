//! profile against programs with known shares and known CPU time.

use crate::beside::symbols::assert_most;
use crate::prelude::*;
use crate::ticks::{assert_all_ticks, clocked, moments};

/// The sum over stacks with this function; over all with "".
pub(crate) fn samples(report: &Value, function: &str) -> u64 {
    let calls = |stack: &&Value| {
        let mut frames = list(stack, "user").iter();
        function.is_empty() || frames.any(|frame| frame["name"] == function)
    };
    sum(list(report, "stacks").iter().filter(calls), "values.0")
}

/// Three functions by turns of some half a millisecond each, and when each turn was.
const TURNS: &str = r#"
#define TURN(name, number)                                               \
	__attribute__((noinline)) unsigned long name(unsigned long n)    \
	{                                                                \
		WITH_FRAME;                                              \
		for (unsigned long i = 0; i < n; i++)                    \
			__asm__ volatile("" : "+r"(i));                  \
		return n + number;                                       \
	}
TURN(first, 1)
TURN(second, 2)
TURN(third, 3)

#define TURNS 2003

static unsigned long (*const functions[])(unsigned long) = { first, second, third };
static struct { long long begin, end; } turns[TURNS];

int main(void)
{
	unsigned long x = 1;

	ready();
	for (int i = 0; i < TURNS; i++) {
		turns[i].begin = clock_ns(CLOCK_MONOTONIC);
		x += functions[i % 3](300000 + i % 7 * 100000 + x % 2);
		turns[i].end = clock_ns(CLOCK_MONOTONIC);
	}
	for (int i = 0; i < TURNS; i++)
		say("{\"begin_ns\": %lld, \"end_ns\": %lld}\n", turns[i].begin, turns[i].end);
	return finished();
}
"#;

/// By the time of the sample, and the program's own word.
#[test]
fn each_sample_is_of_the_function_that_ran_then() {
    const NAMES: [&str; 3] = ["first", "second", "third"];
    let _machine = Machine::alone();
    let program = Program::c("turns", TURNS, "");
    let path = program.dir().join("turns.perf.txt");
    let workload = program.start("");
    let tid = workload.pid();
    let options = format!("-o {}", path.display());
    let found = clocked(997, &options, workload);
    let moments = moments(&path, tid);
    let count = moments.len() as u64;
    assert_eq!(count, samples(&found.report, ""));
    assert_all_ticks(count, &found.ticks, [tid].into_iter());
    let mut judged = [0_u64; 3];
    for (index, turn) in found.results.iter().enumerate() {
        // Times of samples are whole microseconds. Some are in the clock that the program asks, on this side of the edge.
        let turn = number(turn, "begin_ns") + 1000..number(turn, "end_ns") - 1000;
        for moment in moments.iter().filter(|one| turn.contains(&one.ns)) {
            let named = NAMES.iter().position(|name| moment.is_in(name));
            if let Some(named) = named {
                assert_eq!(named, index % 3, "{moment:?}, {turn:?}");
                judged[named] += 1;
            }
        }
    }
    assert!(judged.iter().all(|judged| *judged > 0), "{judged:?}");
    assert_most(judged.iter().sum(), count, &found.report);
}

/// Runs out of which the printed intervals have to hold.
const RUNS: usize = 10;

#[test]
#[ignore = "statistical: make truth"]
fn shares_lie_inside_their_intervals_in_nine_runs_of_ten() {
    let _machine = Machine::alone();
    let names = ["spin_a", "spin_b", "spin_c"];
    let mut held = [0; 3];
    for _ in 0..RUNS {
        let workload = Workload::start("splitter", "--cpu-seconds 1");
        let (report, results) = traced("profile", "-F 499", workload);
        let truth = names.map(|name| number(&results[0], &format!("{name}_ns")));
        let found = names.map(|name| samples(&report, name));
        let (spent, all): (u64, u64) = (truth.iter().sum(), found.iter().sum());
        assert!(all > 400, "only {all} samples");
        for (index, held) in held.iter_mut().enumerate() {
            let share = ::profile::statistics::share(found[index], all);
            let truth = truth[index] as f64 / spent as f64;
            *held += usize::from(share.low <= truth && truth <= share.high);
        }
    }
    assert!(
        held.iter().all(|held| held * 10 >= RUNS * 9),
        "{held:?} of {RUNS} runs"
    );
}

#[test]
fn samples_are_the_ticks_that_find_a_thread() {
    let _machine = Machine::alone();
    let workload = Workload::start("spinner", "--threads 2 --seconds 2");
    let main = workload.pid();
    let found = clocked(997, "", workload);
    // In user mode there is no kernel stack: none is missing.
    assert_eq!(number(&found.report, "losses.stack_unwalked"), 0);
    let spinners = found.results.iter().map(|thread| id(thread, "tid"));
    let all = samples(&found.report, "");
    assert_all_ticks(all, &found.ticks, spinners.chain([main]));
}
