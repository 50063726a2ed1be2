//! A collection in windows: requests that complete in one stand for those of the stratum around it.
//!
//! A completion tells all about its request by the kernel's own stamps, whenever it began. Where more is wanted than the kernel
//! keeps, requests count that begin in a window, and their ends are awaited. Either way a long request is as likely to be seen
//! as a short one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bpf::biolatency::BiolatencySkel;
use bpf::biolatency::types::{group_id, started, submitter};
use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, MapFlags, Object};
use trace::budget::{Estimates, Groups, Sampler, Window, Windowed, open_edges_settled, shut_edges};
use trace::cost::Meter;
use trace::histogram::harvest::Group;
use trace::loader::section;
use trace::maps;

use crate::args::Args;
use crate::disk_use::DiskUse;
use crate::harvest::{Harvest, Taken};

/// What events run, and what is detached between windows. Requeues are too rare to be.
pub(crate) const GATED: [&str; 13] = [
    "block_rq_complete",
    "block_io_done",
    "block_io_start",
    "block_rq_insert",
    "block_rq_insert_pre_5_11",
    "block_rq_issue",
    "block_rq_issue_pre_5_11",
    "block_rq_merge",
    "block_rq_merge_pre_5_11",
    "block_bio_queue",
    "block_bio_queue_pre_5_11",
    "block_split",
    "block_split_pre_5_11",
];

/// For so long the ends of a window's requests are awaited, programs attached.
const PATIENCE: Duration = Duration::from_millis(250);
/// Time between two looks.
const PAUSE: Duration = Duration::from_micros(500);

/// The windows of an interval so far.
pub(crate) struct Sums {
    groups: Groups<group_id>,
    /// By address and number.
    disks: HashMap<(u64, u32), DiskUse>,
    random: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            disks: HashMap::new(),
            random: 1,
        }
    }
}

/// The tool at the edge of a window.
pub(crate) struct Windows<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut BiolatencySkel<'static>,
    pub(crate) harvest: &'a mut Harvest,
    pub(crate) sums: &'a mut Sums,
}

/// With a budget: the windows, the first of which is open.
pub(crate) fn sampler<'a>(
    args: &'a Args,
    skel: &mut BiolatencySkel<'static>,
    harvest: &mut Harvest,
    meter: &'a Meter,
) -> Result<Option<(Sampler<'a>, Sums)>> {
    let mut sums = Sums::default();
    let who = ("biolatency", args.common.verbose);
    let windows = &mut Windows {
        args,
        skel,
        harvest,
        sums: &mut sums,
    };
    let sampler = args.budget.sampler(who, meter, &GATED, windows)?;
    Ok(sampler.map(|sampler| (sampler, sums)))
}

impl Windowed for Windows<'_> {
    fn object(&self) -> &Object {
        self.skel.object()
    }

    fn open(&mut self, length_ns: Option<u64>, _first: bool) -> Result<u64> {
        if length_ns.is_some() {
            self.forget_begun()?;
        }
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        if length_ns.is_none() {
            // Everything is looked at, again.
            bss.in_windows = 0;
        }
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        Ok(open_edges_settled(start_ns, end_ns, length_ns))
    }

    fn shut(&mut self) -> Result<u64> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let now = shut_edges(&mut bss.window_end_ns);
        if bss.in_windows != 0 && self.args.tracks() {
            self.harvest.cut_off += wait_for_ends(&mut bss.awaited);
        }
        Ok(now)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let taken = self.harvest.take_window(self.args, self.skel)?;
        let homeless = self.sums.add(self.args, taken, window);
        // Beside those of single windows, which are over.
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.groups_full += homeless;
        Ok(())
    }
}

impl Windows<'_> {
    /// Requests of the window before: some go on, the ends of others were hidden. No window is open, so that nothing is added.
    fn forget_begun(&mut self) -> Result<()> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let was_everything = bss.in_windows == 0;
        bss.in_windows = 1;
        let started = &self.skel.maps.started;
        for key in started.keys().collect::<Vec<_>>() {
            let request = started.lookup(&key, MapFlags::ANY)?;
            let request = request.map(|bytes| maps::decode::<started>(&bytes));
            let is_other = |request: &started| request.submitter == submitter::SUBMITTER_OTHER;
            let counts = request.transpose()?.is_some_and(|own| !is_other(&own));
            // Completed meanwhile: not there any more.
            let is_there = started.delete(&key).is_ok();
            let is_cut_off = was_everything && is_there && counts && self.args.tracks();
            self.harvest.cut_off += u64::from(is_cut_off);
        }
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.awaited = 0;
        Ok(())
    }
}

/// Waits for the ends of what began in a window that is over; how many did not come.
fn wait_for_ends(awaited: &mut i64) -> u64 {
    let began = Instant::now();
    while load(awaited) > 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
    u64::try_from(load(awaited)).unwrap_or(0)
}

/// BPF programs change it meanwhile.
fn load(place: &mut i64) -> i64 {
    // SAFETY: valid, aligned and ours alone, as far as this process goes.
    unsafe { AtomicI64::from_ptr(place) }.load(Ordering::Acquire)
}

impl Sums {
    /// Returns how many requests found no room; those of disks always do, for there are few.
    fn add(&mut self, args: &Args, (groups, disks): Taken, window: &Window) -> u64 {
        // The same requests, in several phases.
        let tallied = args.measured().last().map(|phase| *phase as u32);
        let is_tallied = |id: &group_id| Some(id.phase) == tallied;
        let homeless = self.groups.add(&groups, window, is_tallied);
        for mut part in disks {
            part.scale(window.weight(), &mut self.random);
            match self.disks.get_mut(&(part.address, part.dev)) {
                Some(sum) => sum.add(part),
                None => {
                    self.disks.insert((part.address, part.dev), part);
                }
            }
        }
        homeless
    }

    /// Estimated so far.
    pub(crate) fn requests(&self) -> u64 {
        let classes = self.disks.values().flat_map(|disk| &disk.classes);
        classes.map(|class| class.requests).sum()
    }

    /// Groups and disks of an interval of `elapsed_ns`, in no order, and how sure they are.
    pub(crate) fn finish(
        mut self,
        elapsed_ns: u64,
    ) -> (Vec<Group<group_id>>, Vec<DiskUse>, Option<Estimates>) {
        let weight = self.groups.scale(elapsed_ns);
        let mut disks: Vec<DiskUse> = self.disks.into_values().collect();
        for disk in &mut disks {
            disk.scale(weight, &mut self.random);
        }
        let (groups, estimates) = self.groups.finish(elapsed_ns);
        (groups, disks, estimates)
    }
}
