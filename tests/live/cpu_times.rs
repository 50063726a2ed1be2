//! What the kernel says of its CPUs since a tool began: time that was stolen, and time that they were not idle.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

use crate::workload::number;

/// `/proc/stat` counts in these, ns.
pub(crate) const TICK_NS: u64 = 10_000_000;

struct CpuTimes {
    at: Instant,
    /// Taken from all CPUs together by a hypervisor since the machine started.
    stolen_ns: u64,
    /// That nobody ran, by CPU, with the number of each: one that is off is not there.
    idle_ns: Vec<(usize, u64)>,
}

impl CpuTimes {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").expect("/proc/stat");
        let ticks = |line: &str, field: usize| {
            let ticks = line.split_whitespace().nth(field);
            ticks.and_then(|ticks| ticks.parse::<u64>().ok())
        };
        let of_cpu = |line: &str| {
            let cpu = line.strip_prefix("cpu")?.split(' ').next()?.parse().ok()?;
            Some((cpu, ticks(line, 4)? * TICK_NS))
        };
        let stolen = ticks(&text, 8);
        Self {
            at: Instant::now(),
            stolen_ns: stolen.expect("cpu user nice system idle iowait irq softirq steal")
                * TICK_NS,
            idle_ns: text.lines().filter_map(of_cpu).collect(),
        }
    }
}

static BEFORE: Mutex<Option<CpuTimes>> = Mutex::new(None);

/// What follows counts. To be called when a tool begins to trace.
pub(crate) fn watch_cpus() {
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(CpuTimes::now());
}

fn since_watched<T>(difference: impl FnOnce(&CpuTimes, &CpuTimes) -> T) -> T {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    difference(
        before.as_ref().expect("a tool has been started"),
        &CpuTimes::now(),
    )
}

/// What a hypervisor has taken from all CPUs together since then, in steps of 10 ms.
pub(crate) fn stolen_ns() -> u64 {
    since_watched(|before, now| now.stolen_ns.saturating_sub(before.stolen_ns))
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

/// For how long the CPUs but this one were not idle since then, all together.
pub(crate) fn busy_elsewhere_ns(cpu: usize) -> u64 {
    since_watched(|before, now| {
        let elapsed = u64::try_from((now.at - before.at).as_nanos()).unwrap_or(u64::MAX);
        let busy = |(other, idle): &(usize, u64)| {
            let earlier = before.idle_ns.iter().find(|(cpu, _)| cpu == other);
            let idle = idle.saturating_sub(earlier.map_or(0, |(_, idle)| *idle));
            elapsed.saturating_sub(idle)
        };
        let elsewhere = now.idle_ns.iter().filter(|(other, _)| *other != cpu);
        elsewhere.map(busy).sum()
    })
}
