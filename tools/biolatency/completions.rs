//! Holds what we have seen complete to the kernel's own count: where a kernel shields some tasks from BPF, interrupts that hit
//! those go unseen.

use std::collections::{HashMap, HashSet};

use crate::biolatency::args::Args;
use crate::biolatency::disk_use::{DiskUse, FLUSH, PASSTHROUGH};
use crate::biolatency::disks::{Completed, Stat, counts_commands};

/// Since the beginning of the run, by disk.
#[derive(Default)]
pub(crate) struct Completions {
    /// The kernel's at the beginning; `None` when not all I/O is asked for.
    before: Option<HashMap<u32, Completed>>,
    /// Those that count driver commands, too.
    with_commands: HashSet<u32>,
    seen: HashMap<u32, Completed>,
    unseen: Completed,
}

impl Completions {
    pub(crate) fn begin(args: &Args, stats: &HashMap<u32, Stat>) -> Self {
        let counts = || stats.iter().map(|(dev, stat)| (*dev, stat.completed));
        let with_commands = stats
            .iter()
            .filter(|(_, stat)| counts_commands(&stat.name))
            .map(|(dev, _)| *dev);
        Self {
            with_commands: with_commands.collect(),
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
            // Read, written, discarded: what is in the kernel's count.
            for class in &disk.classes[..FLUSH] {
                seen.add(class.completed());
            }
            if self.with_commands.contains(&disk.dev) {
                seen.add(disk.classes[PASSTHROUGH].completed());
            }
        }
        self.unseen = Completed::default();
        for (dev, seen) in &self.seen {
            let now = stats.get(dev).map(|stat| stat.completed);
            let before = before.get(dev).copied().unwrap_or_default();
            let unseen = now.unwrap_or_default().since(before).since(*seen);
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
    use crate::biolatency::disk_use::Class;

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
    fn commands_are_seen_where_the_kernel_counts_them() {
        let args = Args::parse_from(["biolatency"]);
        let mut disk = seen(10, 40_960);
        disk[0].classes[PASSTHROUGH] = Class {
            requests: 2,
            bytes: 512,
            ..Class::default()
        };
        // Two that are counted are commands, or else data.
        for (counts, requests, bytes) in [(true, 0, 0), (false, 2, 512)] {
            let mut completions = Completions::begin(&args, &stats(0, 0));
            completions.with_commands = HashSet::from_iter(counts.then_some(7));
            completions.add(&disk, &stats(12, 41_472));
            assert_eq!(completions.unseen(), Completed { requests, bytes });
        }
    }
}
