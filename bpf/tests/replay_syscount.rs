//! syscount's programs on random calls of random threads, against what its man page says of calls, intervals and errors.

#[path = "host/syscount_asked.rs"]
mod asked;
#[path = "host/syscount_calls.rs"]
mod calls;
#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;
#[path = "host/syscount_intervals.rs"]
mod intervals;
#[path = "host/syscount_rows.rs"]
mod rows;
#[path = "host/syscount_threads.rs"]
mod threads;

use calls::Calls;
use host::Host;

/// Several windows' worth of seeds: each one draws other options.
#[test]
fn calls_are_counted_as_asked_in_the_interval_in_which_they_return() {
    let object = host::compile("syscount");
    for seed in 0..200 {
        let mut calls = Calls::new(Host::load(&object), seed);
        calls.play(seed);
    }
}
