//! What the BPF side has gathered, as plain data.

use std::mem::size_of;
use std::sync::Arc;

use anyhow::{Result, bail};
use bpf::pressure::PressureSkel;
use bpf::pressure::types::{exited_key, stalls, task_stock};
use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, MapFlags};
use trace::cost::count_skipped;
use trace::histogram::harvest::wait_for_running_programs;
use trace::iterate;
use trace::loader::section;
use trace::losses::Losses;
use trace::maps;
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

/// Time that CPUs spent stalled, since tracing began: `enum stall_time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StallTimes {
    /// Some and full, by `ON_CPU`, `ON_MEMORY`, `ON_IO`.
    pub(crate) stalled_ns: [[u64; 2]; 3],
    pub(crate) nonidle_ns: u64,
    /// Tasks × ns without CPU quota.
    pub(crate) throttled_ns: u64,
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

/// Every CPU's times up to `edge_ns`; 0: up to its latest event.
pub(crate) fn stall_times(skel: &PressureSkel<'_>, edge_ns: u64) -> Result<Vec<StallTimes>> {
    let in_windows = section(skel.maps.rodata_data, ".rodata")?.in_windows != 0;
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    let window = in_windows.then_some((bss.window, bss.window_start_ns));
    (0..libbpf_rs::num_possible_cpus()?)
        .map(|cpu| {
            let key = u32::try_from(cpu)?.to_ne_bytes();
            let bytes = skel.maps.stalls.lookup(&key, MapFlags::LOCK)?;
            let cpu: stalls = maps::decode(&bytes.unwrap_or_default())?;
            Ok(match window {
                Some((window, _)) if cpu.window != window => times_up_to(&cpu, cpu.since_ns),
                Some((_, start_ns)) if start_ns > cpu.since_ns => {
                    let since_ns = start_ns.min(edge_ns);
                    times_up_to(&stalls { since_ns, ..cpu }, edge_ns)
                }
                _ => times_up_to(&cpu, edge_ns),
            })
        })
        .collect()
}

impl StallTimes {
    /// What has grown.
    pub(crate) fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// This, and `weight` times `more`.
    pub(crate) fn plus(&self, more: &Self, weight: f64) -> Self {
        self.with(more, |sum, more| {
            sum + (weight * more as f64).round() as u64
        })
    }

    fn with(&self, other: &Self, figure: impl Fn(u64, u64) -> u64) -> Self {
        let mut stalled_ns = self.stalled_ns;
        for (sums, others) in stalled_ns.iter_mut().zip(other.stalled_ns) {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = figure(*sum, other);
            }
        }
        Self {
            stalled_ns,
            nonidle_ns: figure(self.nonidle_ns, other.nonidle_ns),
            throttled_ns: figure(self.throttled_ns, other.throttled_ns),
        }
    }
}

/// What `pass_time` on the BPF side would say if something happened at `edge_ns`.
fn times_up_to(cpu: &stalls, edge_ns: u64) -> StallTimes {
    let [waiting, throttled, io, memory_waiting, memory_asleep] = cpu.counts;
    let busy = i32::from(cpu.busy != 0);
    let memory_running = memory_waiting + i32::from(cpu.busy_memory != 0);
    let (waiting, memory) = (waiting + throttled, memory_running + memory_asleep);
    let running = waiting + busy;
    let passed = match cpu.since_ns {
        0 => 0,
        since => edge_ns.saturating_sub(since),
    };
    let time = |index: usize, holds: bool| cpu.times_ns[index] + if holds { passed } else { 0 };
    let memory_full = memory > 0 && (running == memory_running || cpu.busy_memory != 0);
    StallTimes {
        stalled_ns: [
            [time(0, waiting > 0), time(1, waiting > 0 && busy == 0)],
            [time(2, memory > 0), time(3, memory_full)],
            [time(4, io > 0), time(5, io > 0 && running == 0)],
        ],
        nonidle_ns: time(6, running > 0 || io > 0 || memory > 0),
        throttled_ns: cpu.throttled_ns + passed * u64::try_from(throttled).unwrap_or(0),
    }
}

/// Some and full of the whole machine, ns, as the kernel folds its CPUs: each weighs as much as it was not idle.
pub(crate) fn fold(before: &[StallTimes], after: &[StallTimes]) -> [[u64; 2]; 3] {
    let nonidle =
        |(old, new): (&StallTimes, &StallTimes)| new.nonidle_ns.saturating_sub(old.nonidle_ns);
    let weights: Vec<u64> = before.iter().zip(after).map(nonidle).collect();
    let all = weights.iter().sum::<u64>().max(1) as f64;
    let mut folded = [[0; 2]; 3];
    for (resource, row) in folded.iter_mut().enumerate() {
        for (kind, sum) in row.iter_mut().enumerate() {
            let cpus = before.iter().zip(after).zip(&weights);
            let weighted = cpus.map(|((old, new), weight)| {
                let time = |times: &StallTimes| times.stalled_ns[resource][kind];
                time(new).saturating_sub(time(old)) as f64 * *weight as f64 / all
            });
            *sum = weighted.sum::<f64>() as u64;
        }
    }
    folded
}

/// Switches, wakeups and reclaims seen.
pub(crate) fn events(skel: &PressureSkel<'_>) -> Result<u64> {
    let per_cpu: Vec<u64> = maps::per_cpu(&skel.maps.events, 0)?;
    Ok(per_cpu.iter().sum())
}

/// Whether switches have been found that were hidden from BPF.
pub(crate) fn hides_switches(skel: &PressureSkel<'_>) -> Result<bool> {
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    Ok(bss.hides_switches != 0 || bss.losses.unseen > 0)
}

/// Sets right which CPUs are idle.
pub(crate) fn correct_cpus(skel: &mut PressureSkel<'_>) -> Result<()> {
    let mut corrected = 0;
    section(skel.maps.bss_data.as_deref_mut(), ".bss")?.corrected_cpus = corrected;
    // As many in each turn as there are tasks, in a container perhaps the tool's own alone.
    while corrected < skel.maps.stalls.max_entries() {
        iterate::run(skel.links.correct_cpus.as_ref())?;
        let before = corrected;
        corrected = section(skel.maps.bss_data.as_deref(), ".bss")?.corrected_cpus;
        if corrected <= before {
            bail!("the BPF iterator saw no task");
        }
    }
    Ok(())
}

/// Tasks that have ended since tracing began.
pub(crate) fn exits(skel: &PressureSkel<'_>) -> Result<u64> {
    Ok(section(skel.maps.bss_data.as_deref(), ".bss")?.exits)
}

/// Block requests that failed since tracing began.
pub(crate) fn block_errors(skel: &PressureSkel<'_>) -> Result<u64> {
    Ok(section(skel.maps.bss_data.as_deref(), ".bss")?.block_errors)
}

/// By `ON_…`: stalls whose end was hidden; they are on nobody's account.
const UNSEEN: [(&str, &str); 3] = [
    ("unseen_cpu", "waits for a CPU: end not seen"),
    ("unseen_memory", "stalls on memory: end not seen"),
    ("unseen_io", "waits for I/O: end not seen"),
];

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
    let unseen = &bss.losses;
    losses.count("unseen", "switches not seen", unseen.unseen);
    for (stall, (key, what)) in UNSEEN.into_iter().enumerate() {
        losses.time(
            key,
            what,
            unseen.unseen_stalls[stall],
            unseen.unseen_ns[stall],
        );
    }
    losses.count("members_lost", "threads: no memory", bss.members_lost);
    losses.count("unlocked", "changes: lock busy", bss.unlocked);
    Ok(losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_weighs_as_much_as_it_was_not_idle() {
        let cpu = |some, full, nonidle_ns| StallTimes {
            stalled_ns: [[some, full], [0, 0], [10 * some, 0]],
            nonidle_ns,
            ..StallTimes::default()
        };
        let before = [cpu(5, 0, 100), cpu(0, 0, 0)];
        // One CPU stalled half of its 300 ns, the other one not at all in its 100.
        let after = [cpu(155, 0, 400), cpu(0, 0, 100)];
        let folded = fold(&before, &after);
        assert_eq!(folded[ON_CPU], [112, 0]);
        assert_eq!(folded[ON_IO], [1125, 0]);
        assert_eq!(fold(&before, &before), [[0; 2]; 3]);
    }

    #[test]
    fn the_time_since_the_last_change_counts() {
        let cpu = stalls {
            counts: [1, 0, 2, 0, 0],
            busy: 1,
            since_ns: 1_000,
            ..stalls::default()
        };
        let times = times_up_to(&cpu, 1_500);
        assert_eq!(times.stalled_ns, [[500, 0], [0, 0], [500, 0]]);
        assert_eq!(times.nonidle_ns, 500);
        assert_eq!(
            times_up_to(&stalls::default(), 1_500),
            StallTimes::default()
        );
        let reclaiming = stalls {
            counts: [1, 0, 0, 0, 0],
            busy: 1,
            busy_memory: 1,
            since_ns: 1_000,
            ..stalls::default()
        };
        assert_eq!(
            times_up_to(&reclaiming, 1_500).stalled_ns[ON_MEMORY],
            [500, 500]
        );
    }
}
