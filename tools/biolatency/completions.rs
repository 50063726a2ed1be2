//! Holds what we have seen complete to the kernel's own count: where a kernel shields some tasks from BPF, interrupts that hit
//! those go unseen.

use std::collections::HashMap;

use crate::args::Args;
use crate::disk_use::{DiskUse, FLUSH, PASSTHROUGH};
use crate::disks::{Completed, Stat};

/// Of one disk.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Read, written, discarded: what every kernel counts.
    data: Completed,
    /// Passed through to the driver: some kernels count these with the data, older ones and where `queue/iostats_passthrough` is set.
    commands: Completed,
}

/// Since the beginning of the run, by disk.
#[derive(Default)]
pub(crate) struct Completions {
    /// The kernel's at the beginning; `None` when not all I/O is asked for.
    before: Option<HashMap<u32, Completed>>,
    seen: HashMap<u32, Seen>,
    unseen: Completed,
}

impl Completions {
    pub(crate) fn begin(args: &Args, stats: &HashMap<u32, Stat>) -> Self {
        let counts = || stats.iter().map(|(dev, stat)| (*dev, stat.completed));
        Self {
            before: args.is_everyones().then(|| counts().collect()),
            ..Self::default()
        }
    }

    /// What we saw in an interval, and the kernel's counts at its end.
    pub(crate) fn add(&mut self, disks: &[DiskUse], stats: &HashMap<u32, Stat>) {
        let Some(before) = &self.before else {
            return;
        };
        for disk in disks {
            let seen = self.seen.entry(disk.dev).or_default();
            for class in &disk.classes[..FLUSH] {
                seen.data.add(class.completed());
            }
            seen.commands.add(disk.classes[PASSTHROUGH].completed());
        }
        self.unseen = Completed::default();
        for (dev, seen) in &self.seen {
            let now = stats.get(dev).map(|stat| stat.completed);
            let before = before.get(dev).copied().unwrap_or_default();
            let counted = now.unwrap_or_default().since(before);
            let unseen = counted.since(seen.data).since(seen.commands);
            self.unseen.requests += unseen.requests;
            self.unseen.bytes += unseen.bytes;
        }
    }

    /// In the kernel's count and not in ours. Bytes alone are those of requests whose data complete by themselves: writes with
    /// a flush, and those that complete in parts.
    pub(crate) fn unseen(&self) -> Completed {
        self.unseen
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::disk_use::Class;

    fn stats(requests: u64, bytes: u64) -> HashMap<u32, Stat> {
        let stat = Stat {
            completed: Completed { requests, bytes },
            ..Stat::default()
        };
        HashMap::from([(7, stat)])
    }

    fn seen(requests: u64, bytes: u64) -> [DiskUse; 1] {
        let mut disk = DiskUse {
            dev: 7,
            ..DiskUse::default()
        };
        disk.classes[1] = Class {
            requests,
            bytes,
            ..Class::default()
        };
        [disk]
    }

    #[test]
    fn what_only_the_kernel_has_counted_was_not_seen() {
        let args = Args::parse_from(["biolatency"]);
        let mut completions = Completions::begin(&args, &stats(100, 4_096_000));
        completions.add(&seen(10, 40_960), &stats(110, 4_136_960));
        assert_eq!(completions.unseen(), Completed::default());
        // The data of one, and all of another; then one more than the kernel has counted yet.
        completions.add(&seen(9, 32_768), &stats(120, 4_177_920));
        completions.add(&seen(1, 4_096), &stats(120, 4_177_920));
        let unseen = Completed {
            requests: 0,
            bytes: 4_096,
        };
        assert_eq!(completions.unseen(), unseen);
    }

    #[test]
    fn commands_may_be_in_the_kernels_count_or_not() {
        let args = Args::parse_from(["biolatency"]);
        let mut disk = seen(10, 40_960);
        disk[0].classes[PASSTHROUGH] = Class {
            requests: 2,
            bytes: 512,
            ..Class::default()
        };
        for counted in [stats(10, 40_960), stats(12, 41_472)] {
            let mut completions = Completions::begin(&args, &stats(0, 0));
            completions.add(&disk, &counted);
            assert_eq!(completions.unseen(), Completed::default());
        }
    }
}
