//! Wakeups: an exact number of them, or so many that threads queue for their CPU.

mod exact;
mod storm;

use usekit_workloads::flags::Flags;

use crate::storm::Storm;

const USAGE: &str = "waker [--count N] [--pairs P] [--cpu C]
       waker --storm [--threads T] [--hogs H] [--burst-us B] [--seconds S] [--cpu C]";

fn main() {
    let flags = Flags::of_program(USAGE);
    let cpu = flags.number("--cpu");
    if flags.has("--storm") {
        let threads: usize = flags.number("--threads").unwrap_or(16);
        if threads == 0 {
            flags.reject("--threads: at least one");
        }
        storm::run(Storm {
            threads,
            hogs: flags.number("--hogs").unwrap_or(2),
            seconds: flags.number("--seconds").unwrap_or(2.0),
            burst_us: flags.number("--burst-us").unwrap_or(100),
            cpu,
        })
    }
    exact::run(
        flags.number("--count").unwrap_or(997),
        flags.number("--pairs").unwrap_or(1),
        cpu,
    )
}
