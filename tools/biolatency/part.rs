//! biolatency's engine as one of several: whose requests were where for how long.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use bpf::biolatency::BiolatencyLinks;
use budget::Told;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use loader::section;
use profile::losses::Losses;
use session::Setup;

use crate::biolatency::args::{Args, Phase};
use crate::biolatency::engine::Biolatency;
use crate::biolatency::harvest::{Harvest, Interval};
use crate::biolatency::labels::{TGID_FLUSH, disk_name};

/// Phases of a request in the order of [`Share::ns`], in words that follow a disk's name.
pub(crate) const PHASES: [Phase; 3] = [Phase::Before, Phase::Queued, Phase::Device];

/// Requests of one process to one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) disk: Arc<str>,
    /// Name and ID of the process that submitted them; empty and 0: not seen.
    pub(crate) process: (Arc<str>, u32),
    /// Time of the requests in each of [`PHASES`], ns.
    pub(crate) ns: [u64; 3],
    /// Requests that ended.
    pub(crate) requests: u64,
}

/// Requests under way, processes on disks, and rows of their histograms that there is room for beside other engines.
const UNDER_WAY: u32 = 16_384;
const GROUPS: u32 = 4096;
const ROWS: u32 = 32_768;
const DISKS: u32 = 512;
/// Nothing is sent: single requests were not asked for. A page, the least that the kernel has, bytes.
const NO_RING: u32 = 4096;

impl<'a> Biolatency<'a> {
    /// Loads it with less room.
    ///
    /// # Errors
    ///
    /// The kernel's refusals.
    pub(crate) fn load_part(args: &'a Args, setup: &Setup<'a>) -> Result<Self> {
        Self::load_with(args, setup, |maps| {
            maps.started.set_max_entries(UNDER_WAY)?;
            maps.submitted.set_max_entries(UNDER_WAY)?;
            maps.groups.set_max_entries(GROUPS)?;
            maps.buckets.set_max_entries(ROWS)?;
            maps.disk_sums.set_max_entries(DISKS)?;
            Ok(maps.slow_ios.set_max_entries(NO_RING)?)
        })
    }
}

impl Biolatency<'_> {
    /// Its programs and maps.
    pub(crate) fn object(&self) -> &Object {
        self.skel.object()
    }

    /// The place where its programs read since when events count. They count until it halts: `end_ns` is nobody's.
    ///
    /// # Errors
    ///
    /// The programs' memory cannot be mapped.
    pub(crate) fn told<'s>(&'s mut self, end_ns: &'s mut u64) -> Result<Told<'s>> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let start_ns = &mut bss.window_start_ns;
        Ok(Told { start_ns, end_ns })
    }

    /// Takes the kernel's counts to compare with, once time counts.
    pub(crate) fn begin(&mut self) {
        self.harvest = Harvest::begin(self.args);
    }

    /// Detaches its programs; what they have counted, and what they lost.
    ///
    /// # Errors
    ///
    /// Their tables cannot be read.
    pub(crate) fn halt(&mut self) -> Result<(Vec<Share>, Losses)> {
        let bss = section(self.skel.maps.bss_data.as_deref(), ".bss")?;
        let start_ns = bss.window_start_ns;
        let interval = self
            .harvest
            .take(self.args, &mut self.skel, &self.counters, start_ns);
        self.skel.links = BiolatencyLinks::default();
        let interval = interval.context("take requests")?;
        Ok((shares(&interval), interval.losses))
    }
}

/// Groups by disk and process, the phases of one together. Flushes are nobody's: several processes' at once.
fn shares(interval: &Interval) -> Vec<Share> {
    let mut shares: HashMap<(Arc<str>, u32), Share> = HashMap::new();
    for group in &interval.groups {
        let whole = &group.whole;
        let Some(at) = PHASES.iter().position(|phase| *phase == group.phase()) else {
            continue;
        };
        let disk: Arc<str> = disk_name(interval, &whole.id).into();
        let share = shares
            .entry((Arc::clone(&disk), whole.id.tgid))
            .or_default();
        share.disk = disk;
        share.process = match whole.id.tgid {
            TGID_FLUSH => ("flushes".into(), 0),
            tgid => (Arc::clone(&whole.comm), tgid),
        };
        share.ns[at] += whole.histogram.sum();
        share.requests = share.requests.max(whole.histogram.count());
    }
    shares.into_values().collect()
}

#[cfg(test)]
mod tests {
    use hist::Histogram;

    use super::*;
    use crate::biolatency::latencies;

    #[test]
    fn the_phases_of_a_processs_requests_are_together() {
        let mut interval = Interval::default();
        for (tgid, phase, ns) in [
            (7, Phase::Queued, 30),
            (7, Phase::Device, 70),
            (TGID_FLUSH, Phase::Device, 5),
        ] {
            let mut histogram = Histogram::default();
            histogram.record(ns);
            let mut group = latencies::tests::of_group(phase, histogram);
            group.whole.id.tgid = tgid;
            group.whole.comm = "db".into();
            interval.groups.push(group);
        }
        let mut shares = shares(&interval);
        shares.sort_by_key(|share| share.process.1);
        let found: Vec<_> = shares
            .iter()
            .map(|share| (&*share.process.0, share.process.1, share.ns, share.requests))
            .collect();
        assert_eq!(
            found,
            [("flushes", 0, [0, 0, 5], 1), ("db", 7, [0, 30, 70], 1)]
        );
    }
}
