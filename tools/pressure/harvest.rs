//! What the BPF side has gathered, as plain data.

use std::mem::size_of;

use anyhow::{Context, Result};
use bpf::pressure::PressureSkel;
use bpf::pressure::types::{exited_key, stalls, task_stock};
use hist::harvest::wait_for_running_programs;
use libbpf_rs::{MapCore, MapFlags};
use loader::counters::Words;
use loader::iterate;
use loader::maps;
use loader::section;

use crate::pressure::task::TaskStock;

/// Values of `enum stalled_on`: what a task can be stalled on.
pub(crate) const ON_CPU: usize = 0;
pub(crate) const ON_MEMORY: usize = 1;
pub(crate) const ON_IO: usize = 2;

/// Ends an interval at `edge_ns`: what follows counts for the next.
pub(crate) fn turn(skel: &mut PressureSkel<'_>, edge_ns: u64) -> Result<()> {
    let bss = section(skel.maps.bss_data.as_deref_mut(), ".bss")?;
    bss.previous_edge_ns = bss.edge_ns;
    bss.edge_ns = edge_ns;
    bss.epoch = 1 - (bss.epoch & 1);
    wait_for_running_programs();
    Ok(())
}

/// The half that is written now.
pub(crate) fn epoch(skel: &PressureSkel<'_>) -> Result<u32> {
    Ok(section(skel.maps.bss_data.as_deref(), ".bss")?.epoch & 1)
}

/// Hands out what every task lost, caused and used in the interval that has ended.
pub(crate) fn take_stock(skel: &PressureSkel<'_>) -> Result<Vec<TaskStock>> {
    let bytes = iterate::run(skel.links.take_stock.as_ref())?;
    bytes
        .chunks_exact(size_of::<task_stock>())
        .map(|record| Ok(TaskStock::from(&maps::decode::<task_stock>(record)?)))
        .collect()
}

/// Tasks that ended since the last call.
pub(crate) fn take_exited(skel: &PressureSkel<'_>) -> Result<Vec<TaskStock>> {
    let entries = maps::drain::<exited_key, task_stock>(&skel.maps.exited)?;
    Ok(entries
        .iter()
        .map(|(_, stock)| TaskStock::from(stock))
        .collect())
}

/// Tasks × ns without CPU quota since tracing began, up to `edge_ns`.
pub(crate) fn throttled_ns(skel: &PressureSkel<'_>, edge_ns: u64) -> Result<u64> {
    (0..loader::maps::possible_cpus()?)
        .map(|cpu| {
            let key = u32::try_from(cpu)?.to_ne_bytes();
            let bytes = skel
                .maps
                .stalls
                .lookup(&key, MapFlags::LOCK)
                .context("read map stalls")?;
            let cpu: stalls = maps::decode(&bytes.unwrap_or_default())?;
            Ok(throttled_up_to(&cpu, edge_ns))
        })
        .sum()
}

/// What `pass_time` on the BPF side would say if something happened at `edge_ns`.
fn throttled_up_to(cpu: &stalls, edge_ns: u64) -> u64 {
    let [_, throttled] = cpu.counts;
    let passed = match cpu.since_ns {
        0 => 0,
        since => edge_ns.saturating_sub(since),
    };
    cpu.throttled_ns + passed * u64::try_from(throttled).unwrap_or(0)
}

/// Switches, wakeups and reclaims seen.
pub(crate) fn events(skel: &PressureSkel<'_>) -> Result<u64> {
    let per_cpu: Vec<u64> = maps::per_cpu(&skel.maps.events, 0)?;
    Ok(per_cpu.iter().sum())
}

/// Tasks that have ended since tracing began.
pub(crate) fn exits(skel: &PressureSkel<'_>) -> Result<u64> {
    Ok(section(skel.maps.bss_data.as_deref(), ".bss")?.exits)
}

/// Block requests that failed since tracing began.
pub(crate) fn block_errors(skel: &PressureSkel<'_>) -> Result<u64> {
    Ok(section(skel.maps.bss_data.as_deref(), ".bss")?.block_errors)
}

/// Counters of what was not counted.
pub(crate) const LOSSES: [Words; 5] = [
    ("losses.exited_full", "tasks that ended: table full"),
    ("losses.unseen", "switches not seen"),
    ("stall_stacks_full", "stacks: no row left"),
    ("stall_stacks_busy", "stacks: per-CPU buffer in use"),
    ("unlocked", "updates: made without their lock"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_the_latest_event_counts() {
        let cpu = stalls {
            counts: [1, 2],
            throttled_ns: 7,
            since_ns: 1_000,
            ..stalls::default()
        };
        assert_eq!(throttled_up_to(&cpu, 1_500), 1_007);
        assert_eq!(throttled_up_to(&cpu, 0), 7);
        assert_eq!(throttled_up_to(&stalls::default(), 1_500), 0);
    }
}
