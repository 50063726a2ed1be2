//! profile against programs with known shares and known CPU time.

use crate::cpu_times::stolen_samples;
use crate::prelude::*;

/// The sum over stacks with this function; over all with "".
fn samples(report: &Value, function: &str) -> u64 {
    let calls = |stack: &&Value| {
        let mut frames = list(stack, "user").iter();
        function.is_empty() || frames.any(|frame| frame["name"] == function)
    };
    sum(list(report, "stacks").iter().filter(calls), "values.0")
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
#[ignore = "statistical: make truth"]
fn samples_are_hertz_times_busy_seconds() {
    let _machine = Machine::alone();
    let workload = Workload::start("spinner", "--threads 2 --seconds 3");
    let (report, results) = traced("profile", "-F 199", workload);
    let busy = sum(&results, "total.oncpu_ns") as f64 / 1e9;
    // In user mode there is no kernel stack: none is missing.
    assert_eq!(number(&report, "losses.stack_unwalked"), 0);
    let truth = 199.0 * busy;
    let bounds = 0.97 * truth..=1.03 * truth + stolen_samples(199.0);
    assert_within("samples", samples(&report, "") as f64, bounds, &report);
}
