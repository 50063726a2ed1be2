//! profile's programs on random events of random threads, against what its man page says of samples.

#[path = "host/entries.rs"]
mod entries;
#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;
#[path = "host/profile_asked.rs"]
mod profile_asked;
#[path = "host/profile_samples.rs"]
mod samples;

use entries::{assert_same, entries};
use host::Host;
use samples::Samples;

/// 10,000 windows for all seeds together.
#[test]
fn samples_are_of_whom_and_as_asked() {
    let object = host::compile("profile");
    for seed in 0..250 {
        let mut samples = Samples::new(Host::load(&object), seed);
        for step in 0..4_000 {
            samples.step(step);
        }
        samples.assert_the_same(seed);
    }
}

/// A run's only window is opened and closed the same way with a budget and without one; a length that is known is told before.
#[test]
fn one_window_is_the_exact_run() {
    let object = host::compile("profile");
    for seed in 0..50 {
        let mut within_budget = Samples::new(Host::load(&object), seed);
        let end_ns = within_budget.play_one_window(0);
        let mut exact = Samples::new(Host::load(&object), seed);
        exact.play_one_window(end_ns);
        let case = format!("seed {seed}");
        assert_same(&entries(&exact.host), &entries(&within_budget.host), &case);
        within_budget.assert_the_same(seed);
        exact.assert_the_same(seed);
    }
}
