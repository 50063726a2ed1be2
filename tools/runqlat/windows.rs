//! A collection in windows: waits that end in one stand for those of the stratum around it.

use std::collections::HashMap;

use anyhow::Result;
use bpf::runqlat::RunqlatSkel;
use bpf::runqlat::types::group_id;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use trace::budget::{Groups, Sampler, Window, Windowed, open_edges_settled, shut_edges};
use trace::cost::Meter;
use trace::histogram::harvest::Group as Waits;
use trace::iterate;
use trace::loader::section;
use trace::maps;

use crate::args::Args;
use crate::harvest::{self, Culprit, Interval};

/// What events run, and what is detached between windows.
pub(crate) const GATED: [&str; 4] = [
    "sched_switch",
    "sched_switch_pre_5_18",
    "sched_wakeup",
    "sched_wakeup_new",
];

/// Most tasks of all windows together.
const MOST_CULPRITS: usize = 1 << 16;

/// The windows of an interval so far.
#[derive(Default)]
pub(crate) struct Sums {
    groups: Groups<group_id>,
    culprits: HashMap<u32, Culprit>,
}

/// The tool at the edge of a window.
pub(crate) struct Windows<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut RunqlatSkel<'static>,
    pub(crate) sums: &'a mut Sums,
}

/// With a budget: the windows, the first of which is open.
pub(crate) fn sampler<'a>(
    args: &'a Args,
    skel: &mut RunqlatSkel<'static>,
    meter: &'a Meter,
) -> Result<Option<(Sampler<'a>, Sums)>> {
    let mut sums = Sums::default();
    let who = ("runqlat", args.common.verbose);
    let windows = &mut Windows {
        args,
        skel,
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
        // Slices that ran before the window have nothing to do with its waits.
        maps::clear_per_cpu(&self.skel.maps.history, 0)?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.in_windows = 1;
        // Learnt anew in each window: clocks drift apart.
        if bss.clock_offset != 0 {
            bss.last_clock_offset = bss.clock_offset;
        }
        (bss.clock_offset, bss.clock_samples) = (0, 0);
        iterate::run(self.skel.links.open_waits.as_ref())?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        // Attaching had threads wait that otherwise do not.
        Ok(open_edges_settled(start_ns, end_ns, length_ns))
    }

    fn shut(&mut self) -> Result<u64> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        Ok(shut_edges(&mut bss.window_end_ns))
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let (waits, culprits) = harvest::take_window(self.args, self.skel)?;
        let (homeless, nameless) = self.sums.add(&waits, culprits, window);
        // Beside those of single windows, which are over.
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.groups_full += homeless;
        bss.culprits_full += nameless;
        Ok(())
    }
}

impl Sums {
    /// Returns how many waits, and how many who caused some, found no room.
    fn add(
        &mut self,
        waits: &[Waits<group_id>],
        culprits: Vec<Culprit>,
        window: &Window,
    ) -> (u64, u64) {
        let weight = window.weight();
        let homeless = self.groups.add(waits, window, |_| true);
        let mut nameless = 0;
        for mut part in culprits {
            part.caused_ns = (part.caused_ns as f64 * weight).round() as u64;
            part.waits = (part.waits as f64 * weight).round() as u64;
            let is_full = self.culprits.len() >= MOST_CULPRITS;
            match self.culprits.get_mut(&part.tid) {
                Some(sum) => {
                    sum.caused_ns += part.caused_ns;
                    sum.waits += part.waits;
                }
                None if is_full => nameless += 1,
                None => {
                    self.culprits.insert(part.tid, part);
                }
            }
        }
        (homeless, nameless)
    }

    /// The interval that ends now, with its groups and tasks.
    pub(crate) fn interval(
        self,
        skel: &RunqlatSkel<'_>,
        start_ns: u64,
        end_ns: u64,
    ) -> Result<Interval> {
        let elapsed_ns = end_ns - start_ns;
        let scale = self.groups.scale(elapsed_ns);
        let (mut waits, estimates) = self.groups.finish(elapsed_ns);
        waits.sort_by_key(|waits| waits.id.id);
        let mut culprits: Vec<_> = self.culprits.into_values().collect();
        for culprit in &mut culprits {
            culprit.caused_ns = (culprit.caused_ns as f64 * scale).round() as u64;
            culprit.waits = (culprit.waits as f64 * scale).round() as u64;
        }
        culprits.sort_by_key(|culprit| std::cmp::Reverse((culprit.caused_ns, culprit.tid)));
        Ok(Interval {
            start_ns,
            end_ns,
            waits,
            culprits,
            open: harvest::open_waits(skel)?,
            under_way_at_start: harvest::totals(skel)?.under_way_at_start,
            losses: harvest::losses(skel)?,
            estimates,
        })
    }
}
