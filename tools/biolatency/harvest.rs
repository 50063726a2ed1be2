//! One interval out of the BPF side's maps.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bpf::biolatency::BiolatencySkel;
use bpf::biolatency::types::{disk, disk_epoch, disk_key, disk_sum, error_key, started, submitter};
use budget::meter::losses;
use hist::harvest::{take_groups, take_half, wait_for_running_programs};
use host::clock::monotonic_ns;
use host::task::comm_text;
use libbpf_rs::MapCore;
use libbpf_rs::skel::Skel;
use loader::counters::{Counters, Words};
use loader::maps;
use loader::section;
use profile::losses::Losses;
use profile::rank::Rank;
use session::progress::State;

use crate::biolatency::args::Args;
use crate::biolatency::completions::Completions;
use crate::biolatency::disk_use::{DiskUse, Failures, add_up, add_whole};
use crate::biolatency::disks::{self, Stat};
use crate::biolatency::latencies::{self, OfClass, OfGroup};

/// One report's worth.
#[derive(Default)]
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Per group and phase; by phase only unless grouping was asked for.
    pub(crate) groups: Vec<OfGroup>,
    /// Reads, writes and so on.
    pub(crate) by_class: Vec<OfClass>,
    /// By name.
    pub(crate) disks: Vec<DiskUse>,
    /// Requests that have begun and not ended, and ns since the first of them did; when requests are followed.
    pub(crate) under_way: Option<(u64, u64)>,
    /// Since the start of the run.
    pub(crate) begun_before: u64,
    /// Since the start of the run.
    pub(crate) losses: Losses,
}

impl Interval {
    /// Its length, ns; not 0.
    pub(crate) fn wall_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns).max(1)
    }
}

/// Takes intervals; remembers what the kernel's own counters were at the end of the last one.
#[derive(Default)]
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
        counters: &Counters,
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
        let mut disks = self.disk_uses(skel, epoch)?;
        add_whole(&mut disks, &before, &self.stats);
        self.completions.add(&disks, &self.stats);
        let found = take_groups(&skel.maps.groups, &skel.maps.buckets, epoch)?;
        Ok(Interval {
            start_ns,
            end_ns,
            by_class: latencies::by_class(args.measured(), &found),
            groups: latencies::groups(args, found),
            disks,
            under_way: under_way(args, skel, end_ns)?,
            begun_before,
            losses: self.losses(skel, counters)?,
        })
    }

    fn disk_uses(&self, skel: &BiolatencySkel<'_>, epoch: u32) -> Result<Vec<DiskUse>> {
        let mut uses: HashMap<(u64, u32), DiskUse> = HashMap::new();
        for (key, cpus) in maps::per_cpu_entries::<disk_epoch, disk_sum>(&skel.maps.disk_sums)? {
            if key.epoch != epoch {
                continue;
            }
            // SAFETY: a plain key is as many initialised bytes.
            let bytes = unsafe { plain::as_bytes(&key) };
            skel.maps.disk_sums.delete(bytes).context("clear map")?;
            uses.insert((key.disk, key.dev), add_up(&key, &cpus));
        }
        let is_ours = |key: &error_key| key.epoch == epoch;
        for (key, count) in take_half(&skel.maps.errors, "clear map", is_ours)? {
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
            found
                .failures
                .rank_by_key(|failures| (failures.class, failures.status));
        }
        let mut uses: Vec<DiskUse> = uses.into_values().collect();
        uses.rank_by(|a, b| a.name.cmp(&b.name));
        Ok(uses)
    }

    /// Names of disks, now.
    pub(crate) fn name(&self, skel: &BiolatencySkel<'_>, disk: u64, dev: u32) -> Result<String> {
        Ok(DiskNames::read(skel)?.of(disk, dev, &self.stats))
    }
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

/// Counters of what was not counted.
pub(crate) const LOSSES: [Words; 8] = [
    ("groups_full", "requests: too many groups"),
    ("buckets_full", "requests: table full"),
    ("started_full", "requests under way: table full"),
    ("disks_full", "requests: too many disks"),
    (
        "losses.slow_ring_full",
        "slow requests not printed: ring full",
    ),
    ("losses.unstamped", "requests: issue not seen"),
    ("losses.unattributed", "requests: submitter not seen"),
    ("losses.negative", "durations: clock went backwards"),
];

impl Harvest {
    /// What the progress line shows: requests since the start of the interval, and losses.
    pub(crate) fn progress(
        &self,
        skel: &BiolatencySkel<'_>,
        counters: &Counters,
        done: u64,
    ) -> Result<State> {
        let sums = maps::per_cpu_entries::<disk_epoch, disk_sum>(&skel.maps.disk_sums)?;
        let now: u64 = sums
            .iter()
            .flat_map(|(_, cpus)| cpus)
            .flat_map(|cpu| cpu.requests)
            .sum();
        Ok(State {
            events: done + now,
            // Bytes are no events.
            lost: self.losses(skel, counters)?.total() - self.completions.unseen().bytes,
            ..State::default()
        })
    }

    /// Every counter of what was not counted.
    pub(crate) fn losses(&self, skel: &BiolatencySkel<'_>, counters: &Counters) -> Result<Losses> {
        let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
        let mut losses = losses(skel.object(), counters)?;
        let unseen = self.completions.unseen();
        losses.count(
            "unseen",
            "requests: completion not seen",
            // Two views of the same; each knows of requests that the other does not.
            unseen.requests.max(bss.never_completed),
        );
        losses.count("unseen_bytes", "bytes: completion not seen", unseen.bytes);
        Ok(losses)
    }
}
