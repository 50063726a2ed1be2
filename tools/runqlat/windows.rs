//! A collection in windows: waits that end in one stand for those of the stratum around it. Without a budget there is one an
//! interval, which stands for itself.

use anyhow::Result;
use bpf::runqlat::RunqlatSkel;
use bpf::runqlat::types::group_id;
use budget::{
    Bounded, Groups, Weighted, Window, Windowed, add_shared, ended_at, open_edges,
    open_edges_settled, shut_edges,
};
use hist::harvest::{Group as Waits, wait_for_running_programs};
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use loader::counters::Counters;
use loader::iterate;
use loader::maps;
use loader::section;
use profile::rank::Rank;

use crate::runqlat::args::Args;
use crate::runqlat::harvest::{self, Culprit, Interval};

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
pub(crate) struct Sums {
    groups: Groups<group_id>,
    culprits: Bounded<u32, Caused>,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            culprits: Bounded::new(MOST_CULPRITS),
        }
    }
}

/// Sums of what one task caused; whole numbers only at the end: who has one wait in each window would lose or gain the same
/// fraction every time.
struct Caused {
    culprit: Culprit,
    caused_ns: Weighted,
    waits: Weighted,
}

/// The tool at the edge of a window.
pub(crate) struct Windows<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut RunqlatSkel<'static>,
    pub(crate) sums: &'a mut Sums,
}

impl Windows<'_> {
    /// A run within a budget looks at times only.
    fn is_limited(&self) -> bool {
        self.args.budget.max_overhead.is_some()
    }

    /// Takes stock, so that waits that are under way count from the window's opening on.
    fn open_window(&mut self, length_ns: Option<u64>) -> Result<u64> {
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
}

impl Windowed for Windows<'_> {
    fn object(&self) -> &Object {
        self.skel.object()
    }

    fn open(&mut self, length_ns: Option<u64>, _first: bool) -> Result<u64> {
        if self.is_limited() {
            return self.open_window(length_ns);
        }
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        Ok(open_edges(start_ns, end_ns, length_ns))
    }

    fn shut(&mut self) -> Result<u64> {
        let is_limited = self.is_limited();
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        if is_limited {
            return Ok(shut_edges(&mut bss.window_end_ns));
        }
        // The other half is written from now on.
        bss.epoch = 1 - bss.epoch;
        let end_ns = ended_at(bss.window_end_ns);
        wait_for_running_programs();
        Ok(end_ns)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let epoch = section(self.skel.maps.bss_data.as_deref(), ".bss")?.epoch;
        let ended = if self.is_limited() { epoch } else { 1 - epoch };
        let waits = harvest::waits(self.args, self.skel, ended)?;
        let culprits = harvest::culprits(self.skel, ended)?;
        let (homeless, nameless) = self.sums.add(&waits, culprits, window);
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        add_shared(&mut bss.groups_full, homeless);
        add_shared(&mut bss.culprits_full, nameless);
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
        let homeless = self.groups.add(waits, window);
        let mut nameless = 0;
        for culprit in culprits {
            let (tid, caused_ns, waits) = (culprit.tid, culprit.caused_ns, culprit.waits);
            let make = || Caused {
                caused_ns: Weighted::default(),
                waits: Weighted::default(),
                culprit,
            };
            match self.culprits.entry(tid, make) {
                Some(sum) => {
                    sum.caused_ns.add(caused_ns, weight);
                    sum.waits.add(waits, weight);
                }
                None => nameless += 1,
            }
        }
        (homeless, nameless)
    }

    /// The interval that ends now, with its groups and tasks.
    pub(crate) fn interval(
        mut self,
        (skel, counters): (&RunqlatSkel<'_>, &Counters),
        start_ns: u64,
        end_ns: u64,
    ) -> Result<Interval> {
        let elapsed_ns = end_ns - start_ns;
        let scale = self.groups.scale(elapsed_ns);
        let (mut waits, estimates) = self.groups.finish(elapsed_ns);
        waits.rank_by_key(|waits| waits.id.id);
        let culprits = ranked(self.culprits.drain().map(|(_, caused)| caused), scale);
        Ok(Interval {
            start_ns,
            end_ns,
            waits,
            culprits,
            open: harvest::open_waits(skel)?,
            under_way_at_start: harvest::totals(skel)?.under_way_at_start,
            losses: harvest::losses(skel, counters)?,
            estimates,
        })
    }
}

/// What all have caused in the interval, the most first.
fn ranked(all: impl Iterator<Item = Caused>, scale: f64) -> Vec<Culprit> {
    let mut random = 1;
    let mut whole = |sum: Weighted| sum.whole_fairly(scale, &mut random);
    let culprits = all.map(|caused| Culprit {
        caused_ns: whole(caused.caused_ns),
        waits: whole(caused.waits),
        ..caused.culprit
    });
    let mut culprits: Vec<_> = culprits.collect();
    culprits.rank_by_key(|culprit| std::cmp::Reverse((culprit.caused_ns, culprit.tid)));
    culprits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_wait(tid: u32) -> Culprit {
        Culprit {
            tgid: 1,
            tid,
            comm: "x".into(),
            caused_ns: 1_000,
            waits: 1,
        }
    }

    /// Windows that each stand for 2.46 of their kind.
    fn window(number: u64) -> Window {
        Window {
            start_ns: number * 246,
            end_ns: number * 246 + 100,
            stratum_ns: 246,
        }
    }

    #[test]
    fn one_wait_per_window_is_not_rounded_the_same_way_each_time() {
        let mut sums = Sums::default();
        for number in 0..100 {
            sums.add(&[], vec![one_wait(7)], &window(number));
        }
        let found = ranked(sums.culprits.drain().map(|(_, caused)| caused), 1.0);
        assert_eq!((found.len(), found[0].waits.abs_diff(246) <= 1), (1, true));
        assert!(found[0].caused_ns.abs_diff(246_000) <= 1);
    }

    #[test]
    fn nor_are_many_who_were_seen_once() {
        let mut sums = Sums::default();
        sums.add(&[], (0..1_000).map(one_wait).collect(), &window(0));
        let found = ranked(sums.culprits.drain().map(|(_, caused)| caused), 1.0);
        let waits: u64 = found.iter().map(|culprit| culprit.waits).sum();
        assert!((2_380..2_540).contains(&waits), "{waits}");
    }
}
