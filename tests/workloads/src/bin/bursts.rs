//! A thread that computes in bursts, rests before each of them, and says when each began and ended.

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{clock, countdown, task};

const USAGE: &str = "bursts [--bursts N] [--millis M]";

/// From the end of one burst to the beginning of the next, however busy the machine is.
const REST_NS: u64 = 400_000_000;

fn burst(cpu_ns: u64) -> Value {
    let (begin_ns, begin_cpu_ns) = (clock::mono_ns(), clock::thread_cpu_ns());
    while clock::thread_cpu_ns() - begin_cpu_ns < cpu_ns {
        countdown!(20_000);
    }
    let spent_ns = clock::thread_cpu_ns() - begin_cpu_ns;
    json!({"begin_ns": begin_ns, "end_ns": clock::mono_ns(), "cpu_ns": spent_ns})
}

fn bursts(count: u64, cpu_ns: u64) -> Value {
    let all = (0..count).map(|_| {
        clock::sleep_ns(REST_NS);
        burst(cpu_ns)
    });
    let all: Vec<Value> = all.collect();
    json!({"tid": task::tid(), "bursts": all})
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let count = flags.number("--bursts").unwrap_or(5);
    let cpu_ns = flags.number("--millis").unwrap_or(100) * 1_000_000;
    let mut stage = Stage::new();
    stage.spawn("bursts", move || move || Some(bursts(count, cpu_ns)));
    stage.run()
}
