//! Utilisation and errors of CPUs, memory and disks, from /proc.

use std::fs;
use std::path::Path;

use crate::clock::monotonic_ns;
use crate::procs;

/// Sectors of /proc/diskstats, whatever the disk's own.
const SECTOR_BYTES: u64 = 512;

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    time_ns: u64,
    /// user nice system idle iowait irq softirq steal.
    cpu_ticks: [u64; 8],
    cpus: u64,
    memory_total_bytes: u64,
    memory_available_bytes: u64,
    swapped_bytes: u64,
    oom_kills: Option<u64>,
    refaulted_bytes: u64,
    disks: Vec<Disk>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Disk {
    name: String,
    read_bytes: u64,
    written_bytes: u64,
    busy_ms: u64,
    /// Sum over requests of the time that each was in flight.
    queue_ms: u64,
}

/// The busiest disk of an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskUse {
    /// Its name, as in /sys/block.
    pub name: String,
    /// Time with at least one request in flight.
    pub busy_percent: f64,
    /// Read from it.
    pub read_bytes: u64,
    /// Written to it.
    pub written_bytes: u64,
    /// Requests in flight, on average.
    pub queue: f64,
}

/// What a machine did in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Use {
    /// CPUs that are there.
    pub cpus: u64,
    /// Share of their time in which they were not idle, or were taken.
    pub busy_percent: f64,
    /// Share of their time in interrupts.
    pub irq_percent: f64,
    /// Taken by the hypervisor.
    pub steal_percent: f64,
    /// Memory that there is.
    pub memory_total_bytes: u64,
    /// Share of it that nobody could have at once.
    pub memory_used_percent: f64,
    /// Memory that is in swap.
    pub swapped_bytes: u64,
    /// Processes that were killed for want of memory; `None`: the kernel does not count them (before 4.13).
    pub oom_kills: Option<u64>,
    /// Memory that was read again soon after it was given up.
    pub refaulted_bytes: u64,
    /// Busiest first; those that did nothing are left out.
    pub disks: Vec<DiskUse>,
}

impl Snapshot {
    /// Reads them.
    pub fn take() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = procs::memory();
        let mut snapshot = Self {
            time_ns: monotonic_ns(),
            ..Self::default()
        };
        snapshot.read_cpus(&read("/proc/stat"));
        let bytes = |name| memory(name).unwrap_or(0);
        snapshot.memory_total_bytes = bytes("MemTotal:");
        snapshot.memory_available_bytes = bytes("MemAvailable:");
        snapshot.swapped_bytes = bytes("SwapTotal:").saturating_sub(bytes("SwapFree:"));
        snapshot.read_memory(&read("/proc/vmstat"));
        snapshot.read_disks(&read("/proc/diskstats"), |name| {
            Path::new("/sys/block").join(name).exists()
        });
        snapshot
    }

    fn read_memory(&mut self, vmstat: &str) {
        self.oom_kills = procs::number(vmstat, "oom_kill");
        let refaulted = ["workingset_refault_anon", "workingset_refault_file"];
        let pages = refaulted
            .iter()
            .filter_map(|name| procs::number(vmstat, name));
        self.refaulted_bytes = pages
            .sum::<u64>()
            .saturating_mul(rustix::param::page_size() as u64);
    }

    fn read_cpus(&mut self, stat: &str) {
        let cpus = stat.lines().filter(|line| line.starts_with("cpu"));
        self.cpus = (cpus.count() as u64).saturating_sub(1);
        let all = stat.lines().next().unwrap_or_default().split_whitespace();
        for (ticks, word) in self.cpu_ticks.iter_mut().zip(all.skip(1)) {
            *ticks = word.parse().unwrap_or(0);
        }
    }

    fn read_disks(&mut self, diskstats: &str, is_whole: impl Fn(&str) -> bool) {
        for line in diskstats.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
            let Some(name) = words.get(2).filter(|name| is_whole(name)) else {
                continue;
            };
            let (Some(read), Some(written), Some(busy_ms), Some(queue_ms)) =
                (number(5), number(9), number(12), number(13))
            else {
                continue;
            };
            let read: u64 = read;
            let written: u64 = written;
            self.disks.push(Disk {
                name: (*name).to_owned(),
                read_bytes: read.saturating_mul(SECTOR_BYTES),
                written_bytes: written.saturating_mul(SECTOR_BYTES),
                busy_ms,
                queue_ms,
            });
        }
    }

    /// Their time, of `CLOCK_MONOTONIC`.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Use of everything since `before`.
    pub fn since(&self, before: &Self) -> Use {
        let elapsed_ns = self.time_ns.saturating_sub(before.time_ns).max(1) as f64;
        let ticks = |at: usize| self.cpu_ticks[at].saturating_sub(before.cpu_ticks[at]);
        // Ticks are charged as they come: their own sum, not the clock, is what they are a share of.
        let all = (0..8).map(ticks).sum::<u64>().max(1) as f64;
        let percent =
            |at: &[usize]| 100.0 * at.iter().map(|at| ticks(*at)).sum::<u64>() as f64 / all;
        let total = self.memory_total_bytes.max(1) as f64;
        let mut disks: Vec<DiskUse> = self
            .disks
            .iter()
            .filter_map(|disk| disk.since(&before.disks, elapsed_ns))
            .collect();
        disks.sort_by(|a, b| {
            let busier = b.busy_percent.total_cmp(&a.busy_percent);
            busier.then_with(|| a.name.cmp(&b.name))
        });
        Use {
            cpus: self.cpus,
            busy_percent: percent(&[0, 1, 2, 5, 6, 7]),
            irq_percent: percent(&[5, 6]),
            steal_percent: percent(&[7]),
            memory_total_bytes: self.memory_total_bytes,
            memory_used_percent: 100.0 - 100.0 * self.memory_available_bytes as f64 / total,
            swapped_bytes: self.swapped_bytes,
            oom_kills: self
                .oom_kills
                .zip(before.oom_kills)
                .map(|(now, then)| now.saturating_sub(then)),
            refaulted_bytes: self.refaulted_bytes.saturating_sub(before.refaulted_bytes),
            disks,
        }
    }
}

impl Disk {
    fn since(&self, before: &[Self], elapsed_ns: f64) -> Option<DiskUse> {
        let before = before.iter().find(|disk| disk.name == self.name)?;
        let busy_ms = self.busy_ms.saturating_sub(before.busy_ms);
        let of_time = |ms: u64| ms as f64 * 1e6 / elapsed_ns;
        let usage = DiskUse {
            name: self.name.clone(),
            busy_percent: (100.0 * of_time(busy_ms)).min(100.0),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            queue: of_time(self.queue_ms.saturating_sub(before.queue_ms)),
        };
        (busy_ms > 0 || usage.read_bytes + usage.written_bytes > 0).then_some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(time_s: u64, stat: &str, disks: &str) -> Snapshot {
        let mut snapshot = Snapshot {
            time_ns: time_s * 1_000_000_000,
            ..Snapshot::default()
        };
        snapshot.read_cpus(stat);
        snapshot.read_disks(disks, |name| name == "vda");
        snapshot
    }

    #[test]
    fn shares_are_of_what_passed_between_two_looks() {
        let disks =
            |io: &str| format!(" 254 0 vda {io}\n 254 1 vda1 9 9 9 9 9 9 9 9 9 9 9\nshort\n");
        let before = snapshot(
            10,
            "cpu  100 0 50 800 40 5 5 0 0 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n",
            &disks("1 0 8 1 1 0 16 1 0 100 200"),
        );
        let after = snapshot(
            12,
            "cpu  220 0 90 980 60 15 15 20 0 0\ncpu0 1 2 3\ncpu1 1 2 3\n",
            &disks("1 0 2056 1 1 0 16 1 0 1100 3200"),
        );
        let usage = after.since(&before);
        assert_eq!(usage.cpus, 2);
        // 400 ticks, 200 of them neither idle nor iowait, 20 in interrupts.
        assert!((usage.busy_percent - 50.0).abs() < 1e-9);
        assert!((usage.irq_percent - 5.0).abs() < 1e-9);
        assert!((usage.steal_percent - 5.0).abs() < 1e-9);
        assert_eq!(usage.disks.len(), 1, "partitions are not counted again");
        let disk = &usage.disks[0];
        assert_eq!((disk.read_bytes, disk.written_bytes), (1 << 20, 0));
        assert!((disk.busy_percent - 50.0).abs() < 1e-9 && (disk.queue - 1.5).abs() < 1e-9);
    }
}
