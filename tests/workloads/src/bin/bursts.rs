//! A thread that computes in bursts, at the beginning of every half second, and says when each began and ended.

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{clock, countdown};

const USAGE: &str = "bursts [--bursts N] [--millis M]";

/// From the beginning of one burst to that of the next.
const PERIOD_NS: u64 = 500_000_000;

fn burst(cpu_ns: u64) -> Value {
    let (begin_ns, begin_cpu_ns) = (clock::mono_ns(), clock::thread_cpu_ns());
    while clock::thread_cpu_ns() - begin_cpu_ns < cpu_ns {
        countdown!(20_000);
    }
    let spent_ns = clock::thread_cpu_ns() - begin_cpu_ns;
    json!({"begin_ns": begin_ns, "end_ns": clock::mono_ns(), "cpu_ns": spent_ns})
}

fn bursts(count: u64, cpu_ns: u64) -> Value {
    let start_ns = clock::mono_ns() + PERIOD_NS;
    let all = (0..count).map(|number| {
        clock::sleep_until(start_ns + number * PERIOD_NS);
        burst(cpu_ns)
    });
    json!({"bursts": all.collect::<Vec<Value>>()})
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let count = flags.number("--bursts").unwrap_or(5);
    let cpu_ns = flags.number("--millis").unwrap_or(100) * 1_000_000;
    let mut stage = Stage::new();
    stage.spawn("bursts", move || move || Some(bursts(count, cpu_ns)));
    stage.run()
}
