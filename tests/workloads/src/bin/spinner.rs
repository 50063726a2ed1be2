//! Busy threads that share one CPU, and the run-queue delay that the kernel charged them for it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use usekit_workloads::account::Account;
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{affinity, clock, countdown};

const USAGE: &str = "spinner [--threads N] [--cpu C] [--seconds S] [--word FILE]";

/// Laps in a second that all threads do however late it gets: a twentieth of what a fast CPU does. A hypervisor may take away all of
/// the time, in which nobody is seen to compute.
const LEAST_LAPS: f64 = 4_000.0;

/// Goes on for so long, and until there is a file of that name.
fn spin(seconds: f64, word: Option<&Path>) -> Value {
    let account = Account::open();
    let end_ns = clock::mono_ns() + (seconds * 1e9) as u64;
    let least = (seconds * LEAST_LAPS) as u64;
    let mut laps = 0;
    let is_told = || word.is_none_or(Path::exists);
    while clock::mono_ns() < end_ns || laps < least || !is_told() {
        countdown!(50_000);
        laps += 1;
    }
    account.close(json!({}))
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let cpu = flags.number("--cpu");
    let seconds: f64 = flags.number("--seconds").unwrap_or(1.0);
    let word = flags.last("--word").map(PathBuf::from);
    let mut stage = Stage::new();
    for i in 0..flags.number("--threads").unwrap_or(4) {
        let word = word.clone();
        stage.spawn(&format!("spinner-{i}"), move || {
            affinity::pin_or_die(cpu);
            move || Some(spin(seconds, word.as_deref()))
        });
    }
    stage.run()
}
