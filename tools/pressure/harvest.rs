//! What the BPF side has gathered, as plain data.

use std::mem::size_of;
use std::sync::Arc;

use anyhow::Result;
use bpf::pressure::PressureSkel;
use bpf::pressure::types::{exited_key, stalls, task_stock};
use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, MapFlags};
use trace::histogram::harvest::wait_for_running_programs;
use trace::iterate;
use trace::loader::section;
use trace::losses::Losses;
use trace::maps;
use trace::meter::count_skipped;
use trace::task::comm_text;

use crate::ended::Many;

/// Values of `enum stalled_on`: what a task can be stalled on.
pub(crate) const ON_CPU: usize = 0;
pub(crate) const ON_MEMORY: usize = 1;
pub(crate) const ON_IO: usize = 2;

/// One task in one interval.
#[derive(Clone, Debug)]
pub(crate) struct TaskStock {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: Arc<str>,
    pub(crate) process_comm: Arc<str>,
    pub(crate) cgroup_id: u64,
    pub(crate) is_kernel_thread: bool,
    pub(crate) has_exited: bool,
    /// By `ON_CPU`, `ON_MEMORY`, `ON_IO`.
    pub(crate) lost_ns: [u64; 3],
    /// Time that others waited for the CPU while it ran.
    pub(crate) caused_ns: u64,
    /// Block I/O requests submitted.
    pub(crate) ios: u64,
    /// Bytes read from disks.
    pub(crate) read_bytes: u64,
    /// Bytes dirtied, or written directly.
    pub(crate) written_bytes: u64,
    /// Page faults.
    pub(crate) faults: u64,
    /// Bits `1 << ON_…` of the wait that is not over, and its length so far.
    pub(crate) open: u8,
    pub(crate) open_ns: u64,
    /// It is the sum of many that have ended.
    pub(crate) many: Option<Many>,
}

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

impl From<&task_stock> for TaskStock {
    fn from(stock: &task_stock) -> Self {
        Self {
            tgid: stock.tgid,
            tid: stock.tid,
            comm: comm_text(&stock.comm),
            process_comm: comm_text(&stock.process_comm),
            cgroup_id: stock.cgroup_id,
            is_kernel_thread: stock.kernel_thread != 0,
            has_exited: stock.exited != 0,
            lost_ns: stock.account.lost_ns,
            caused_ns: stock.account.caused_ns,
            ios: stock.account.ios,
            read_bytes: stock.account.read_bytes,
            written_bytes: stock.account.written_bytes,
            faults: stock.account.faults,
            open: stock.open,
            open_ns: stock.open_ns,
            many: None,
        }
    }
}

/// Tasks × ns without CPU quota since tracing began, up to `edge_ns`.
pub(crate) fn throttled_ns(skel: &PressureSkel<'_>, edge_ns: u64) -> Result<u64> {
    (0..libbpf_rs::num_possible_cpus()?)
        .map(|cpu| {
            let key = u32::try_from(cpu)?.to_ne_bytes();
            let bytes = skel.maps.stalls.lookup(&key, MapFlags::LOCK)?;
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

/// Every counter of what was not counted.
pub(crate) fn losses(skel: &PressureSkel<'_>) -> Result<Losses> {
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    let mut losses = Losses::default();
    count_skipped(skel.object(), &mut losses);
    losses.count(
        "exited_full",
        "tasks that ended: table full",
        bss.losses.exited_full,
    );
    losses.time(
        "unseen",
        "switches not seen",
        bss.losses.unseen,
        bss.losses.unseen_ns,
    );
    losses.count(
        "stacks_left_out",
        "stacks not walked, to keep the budget",
        bss.stacks_left_out,
    );
    losses.count("members_lost", "threads: no memory", bss.members_lost);
    losses.count("unlocked", "changes: lock busy", bss.unlocked);
    Ok(losses)
}

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
