//! One interval out of the BPF side's maps.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bpf::biolatency::BiolatencySkel;
use bpf::biolatency::types::{
    disk, disk_epoch, disk_key, disk_sum, error_key, group_id, started, submitter,
};
use libbpf_rs::MapCore;
use trace::histogram::harvest::{Group, take_groups, take_whole, wait_for_running_programs};
use trace::loader::section;
use trace::losses::Losses;
use trace::maps;
use trace::progress::State;
use trace::task::comm_text;
use trace::window::monotonic_ns;

use crate::args::{Args, Phase};
use crate::disks::{self, Stat};

/// Counts of one disk's requests of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// From start to completion, all together.
    pub(crate) total_ns: u64,
}

/// What failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) class: usize,
    pub(crate) status: i32,
    pub(crate) count: u64,
}

/// One disk's interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskUse {
    pub(crate) name: String,
    pub(crate) dev: u32,
    /// Tells disks apart that have no number: those that are hidden.
    pub(crate) address: u64,
    /// In the order of [`CLASSES`].
    pub(crate) classes: [Class; CLASSES.len()],
    pub(crate) partial: u64,
    pub(crate) requeued: u64,
    pub(crate) failures: Vec<Failures>,
    /// With any of these requests under way, at least.
    pub(crate) busy_ns: u64,
    /// Of the whole disk, whoever uses it; `None` when the kernel does not count.
    pub(crate) whole: Option<Whole>,
}

/// The kernel's own account of a disk's interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) busy_ns: u64,
    pub(crate) merged: u64,
    /// At the end.
    pub(crate) in_flight: u64,
}

/// Words for `enum request_class`.
pub(crate) const CLASSES: [&str; 5] = ["read", "write", "discard", "flush", "passthrough"];

/// One report's worth.
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Per group and phase; by phase only unless grouping was asked for.
    pub(crate) groups: Vec<Group<group_id>>,
    /// By name.
    pub(crate) disks: Vec<DiskUse>,
    /// Requests that have begun and not ended, and ns since the first of them did; when requests are followed.
    pub(crate) under_way: Option<(u64, u64)>,
    /// Since the start of the run.
    pub(crate) begun_before: u64,
    /// Since the start of the run.
    pub(crate) losses: Losses,
}

/// Takes intervals; remembers what the kernel's own counters were at the end of the last one.
pub(crate) struct Harvest {
    stats: HashMap<u32, Stat>,
    completions: Completions,
}

impl Harvest {
    /// Right after the window has been opened.
    pub(crate) fn begin(args: &Args) -> Self {
        let stats = disks::stats();
        Self {
            completions: Completions::begin(args, &stats),
            stats,
        }
    }

    pub(crate) fn take(
        &mut self,
        args: &Args,
        skel: &mut BiolatencySkel<'_>,
        start_ns: u64,
    ) -> Result<Interval> {
        let bss = section(skel.maps.bss_data.as_deref_mut(), ".bss")?;
        // Not after: requests that complete in between are then in ours at least.
        let before = std::mem::replace(&mut self.stats, disks::stats());
        let epoch = bss.epoch;
        bss.epoch = 1 - epoch;
        let begun_before = bss.begun_before;
        let end_ns = monotonic_ns();
        wait_for_running_programs();
        let disks = self.disk_uses(skel, epoch, &before)?;
        self.completions.add(&disks, &self.stats);
        Ok(Interval {
            start_ns,
            end_ns,
            groups: groups(args, skel, epoch)?,
            disks,
            under_way: under_way(args, skel, end_ns)?,
            begun_before,
            losses: self.losses(skel)?,
        })
    }

    fn disk_uses(
        &self,
        skel: &BiolatencySkel<'_>,
        epoch: u32,
        before: &HashMap<u32, Stat>,
    ) -> Result<Vec<DiskUse>> {
        let mut uses: HashMap<(u64, u32), DiskUse> = HashMap::new();
        for (key, cpus) in maps::per_cpu_entries::<disk_epoch, disk_sum>(&skel.maps.disk_sums)? {
            if key.epoch != epoch {
                continue;
            }
            delete(&skel.maps.disk_sums, &key)?;
            uses.insert((key.disk, key.dev), add_up(&key, &cpus));
        }
        for (key, count) in maps::entries::<error_key, u64>(&skel.maps.errors)? {
            if key.epoch != epoch {
                continue;
            }
            delete(&skel.maps.errors, &key)?;
            if let Some(disk) = uses.get_mut(&(key.disk, key.dev)) {
                disk.failures.push(Failures {
                    class: key.class as usize,
                    status: key.status,
                    count,
                });
            }
        }
        let names = DiskNames::read(skel)?;
        for ((disk, dev), found) in &mut uses {
            found.name = names.of(*disk, *dev, &self.stats);
            found.whole = whole(before.get(dev), self.stats.get(dev));
            found
                .failures
                .sort_by_key(|failures| (failures.class, failures.status));
        }
        let mut uses: Vec<DiskUse> = uses.into_values().collect();
        uses.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(uses)
    }

    /// Names of disks, now.
    pub(crate) fn name(&self, skel: &BiolatencySkel<'_>, disk: u64, dev: u32) -> Result<String> {
        Ok(DiskNames::read(skel)?.of(disk, dev, &self.stats))
    }
}

impl DiskUse {
    /// Ours, which completions tell; while something is under way the kernel's, in ticks of its clock, if that is more.
    pub(crate) fn busy_ns(&self, wall_ns: u64) -> u64 {
        let open = self.whole.filter(|whole| whole.in_flight > 0);
        let kernels = open.map_or(0, |whole| whole.busy_ns);
        self.busy_ns.max(kernels).min(wall_ns)
    }

    /// Requests between start and completion, on the average.
    pub(crate) fn queue_length(&self, wall_ns: u64) -> f64 {
        // Flushes are the parts of sequences, which are there as writes already.
        let total_ns: u64 = self
            .classes
            .iter()
            .take(3)
            .map(|class| class.total_ns)
            .sum();
        total_ns as f64 / wall_ns as f64
    }
}

fn add_up(key: &disk_epoch, cpus: &[disk_sum]) -> DiskUse {
    let mut sum = DiskUse {
        dev: key.dev,
        address: key.disk,
        ..DiskUse::default()
    };
    for cpu in cpus {
        for (at, class) in sum.classes.iter_mut().enumerate() {
            class.requests += cpu.requests[at];
            class.bytes += cpu.bytes[at];
            class.total_ns += cpu.total_ns[at];
        }
        sum.busy_ns += cpu.busy_ns;
        sum.partial += cpu.partial;
        sum.requeued += cpu.requeued;
    }
    sum
}

fn whole(before: Option<&Stat>, after: Option<&Stat>) -> Option<Whole> {
    let after = after?;
    let zero = Stat::default();
    // A disk that came during the interval began at 0.
    let before = before.unwrap_or(&zero);
    Some(Whole {
        busy_ns: after.busy_ms.saturating_sub(before.busy_ms) * 1_000_000,
        merged: after.merged.saturating_sub(before.merged),
        in_flight: after.in_flight,
    })
}

/// Disks' names as the BPF side saw them: some are hidden from `/proc`, others are gone.
struct DiskNames(HashMap<u64, String>);

impl DiskNames {
    fn read(skel: &BiolatencySkel<'_>) -> Result<Self> {
        let disks = maps::entries::<disk_key, disk>(&skel.maps.disks)?;
        let names = disks
            .iter()
            .map(|(key, disk)| (key.disk, comm_text(&disk.name).to_string()));
        Ok(Self(names.collect()))
    }

    fn of(&self, disk: u64, dev: u32, stats: &HashMap<u32, Stat>) -> String {
        if disk == 0 {
            // A SCSI device that is being probed.
            return "[no disk]".into();
        }
        let seen = self.0.get(&disk).filter(|name| !name.is_empty());
        match stats.get(&dev) {
            Some(stat) => stat.name.clone(),
            None => seen.cloned().unwrap_or_else(|| disks::dev_text(dev)),
        }
    }
}

fn groups(args: &Args, skel: &BiolatencySkel<'_>, epoch: u32) -> Result<Vec<Group<group_id>>> {
    if args.is_grouped() {
        return take_groups(&skel.maps.groups, &skel.maps.buckets, epoch);
    }
    let whole = |phase: &Phase| {
        let phase = *phase as u32;
        Ok(Group {
            id: group_id {
                phase,
                ..group_id::default()
            },
            comm: "".into(),
            histogram: take_whole(&skel.maps.wholes, epoch * Phase::COUNT + phase)?,
        })
    };
    args.measured().iter().map(whole).collect()
}

fn under_way(args: &Args, skel: &BiolatencySkel<'_>, now_ns: u64) -> Result<Option<(u64, u64)>> {
    if !args.tracks() {
        return Ok(None);
    }
    let started = maps::entries::<u64, started>(&skel.maps.started)?;
    let wanted = started.iter().map(|(_, started)| started);
    let open: Vec<u64> = wanted
        .filter(|started| started.submitter == submitter::SUBMITTER_WANTED)
        .filter(|started| started.start_ns <= now_ns)
        .map(|started| now_ns.saturating_sub(started.start_ns))
        .collect();
    Ok(Some((
        open.len() as u64,
        open.into_iter().max().unwrap_or(0),
    )))
}

fn delete<K: plain::Plain>(map: &impl MapCore, key: &K) -> Result<()> {
    // SAFETY: a plain key is as many initialised bytes.
    map.delete(unsafe { plain::as_bytes(key) })
        .context("clear map")
}

impl Harvest {
    /// What the progress line shows: requests since the start of the interval, and losses.
    pub(crate) fn progress(&self, skel: &BiolatencySkel<'_>, done: u64) -> Result<State> {
        let sums = maps::per_cpu_entries::<disk_epoch, disk_sum>(&skel.maps.disk_sums)?;
        let now: u64 = sums
            .iter()
            .flat_map(|(_, cpus)| cpus)
            .flat_map(|cpu| cpu.requests)
            .sum();
        Ok(State {
            events: done + now,
            lost: self.losses(skel)?.total(),
            ..State::default()
        })
    }

    /// Every counter of what was not counted.
    pub(crate) fn losses(&self, skel: &BiolatencySkel<'_>) -> Result<Losses> {
        let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
        let mut losses = Losses::default();
        losses.count("groups_full", "requests: too many groups", bss.groups_full);
        losses.count("buckets_full", "requests: table full", bss.buckets_full);
        losses.count(
            "started_full",
            "requests under way: table full",
            bss.started_full,
        );
        losses.count("disks_full", "requests: too many disks", bss.disks_full);
        losses.count(
            "slow_ring_full",
            "slow requests not printed: ring full",
            bss.losses.slow_ring_full,
        );
        losses.count(
            "unstamped",
            "requests: issue not seen",
            bss.losses.unstamped,
        );
        losses.count(
            "unseen",
            "requests: completion not seen",
            // Two views of the same; each knows of requests that the other does not.
            self.completions.unseen.max(bss.never_completed),
        );
        losses.count(
            "unattributed",
            "requests: submitter not seen",
            bss.losses.unattributed,
        );
        losses.count("negative", "times running backwards", bss.losses.negative);
        losses.count(
            "targets_full",
            "child processes: table full",
            bss.targets_full,
        );
        Ok(losses)
    }
}

/// Holds our count of completions to the kernel's: where a kernel shields some tasks from BPF, interrupts that hit those
/// go unseen.
struct Completions {
    /// The kernel's counts at the beginning; `None` when not all I/O is asked for.
    before: Option<HashMap<u32, u64>>,
    seen: HashMap<u32, u64>,
    unseen: u64,
}

impl Completions {
    fn begin(args: &Args, stats: &HashMap<u32, Stat>) -> Self {
        let counts = || {
            stats
                .iter()
                .map(|(dev, stat)| (*dev, stat.completed))
                .collect()
        };
        Self {
            before: args.is_everyones().then(counts),
            seen: HashMap::new(),
            unseen: 0,
        }
    }

    fn add(&mut self, disks: &[DiskUse], stats: &HashMap<u32, Stat>) {
        let Some(before) = &self.before else {
            return;
        };
        for disk in disks {
            // Read, written, discarded: what is in the kernel's count.
            let requests = disk.classes.iter().take(3).map(|class| class.requests);
            *self.seen.entry(disk.dev).or_default() += requests.sum::<u64>();
        }
        let unseen = self.seen.iter().map(|(dev, seen)| {
            let now = stats.get(dev).map_or(0, |stat| stat.completed);
            let there = now.saturating_sub(before.get(dev).copied().unwrap_or(0));
            there.saturating_sub(*seen)
        });
        self.unseen = unseen.sum();
    }
}
