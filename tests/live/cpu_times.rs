//! Time stolen from the CPUs since a tool began, by the kernel.

use std::fs;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::found::number;

/// `/proc/stat` counts in these, ns.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// Taken from all CPUs together by a hypervisor since the machine started, ns.
fn stolen_since_boot_ns() -> u64 {
    let text = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let ticks = text.split_whitespace().nth(8);
    let ticks = ticks.and_then(|ticks| ticks.parse::<u64>().ok());
    ticks.expect("cpu user nice system idle iowait irq softirq steal") * TICK_NS
}

static BEFORE: Mutex<Option<u64>> = Mutex::new(None);

/// Begins to count stolen time. To be called when a tool begins to trace.
pub(crate) fn watch_cpus() {
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(stolen_since_boot_ns());
}

/// Time taken by a hypervisor from all CPUs together since then, in steps of 10 ms.
pub(crate) fn stolen_ns() -> u64 {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    stolen_since_boot_ns().saturating_sub(before.expect("a tool has been started"))
}

/// As many samples a clock may have taken meanwhile of threads that did not run: it goes on while a hypervisor has their CPU, and
/// the time that they use up does not.
pub(crate) fn stolen_samples(hertz: f64) -> f64 {
    hertz * stolen_ns() as f64 / 1e9
}

/// Ticks that `profile` reports the machine's busy CPUs to owe it, by their idle time, and that the kernel did not deliver: a hypervisor
/// may halt a CPU for some 50 ms and not call it stolen. The CPU time of who ran there goes on. At most those of 100 ms.
pub(crate) fn untaken_samples(report: &Value) -> f64 {
    let events = |field: &str| number(report, &format!("events.{field}"));
    let taken = events("samples") + events("other_tasks");
    let most = 0.1 * number(report, "frequency_hz") as f64;
    (events("expected").saturating_sub(taken) as f64).min(most)
}

/// Time from switch to switch is the kernel's CPU time, which leaves out what a hypervisor took, up to a share of it.
pub(crate) fn assert_cpu_time(found_ns: u64, truth_ns: u64, tolerance: f64) {
    let (stolen_ns, allowed_ns) = (stolen_ns(), (tolerance * truth_ns as f64) as u64);
    assert!(
        (truth_ns - allowed_ns..=truth_ns + allowed_ns + stolen_ns).contains(&found_ns),
        "{found_ns} ns on a CPU, {truth_ns} and at most {stolen_ns} more expected"
    );
}
