//! A collection in windows: waits that end in one stand for those of the stratum around it. Without a budget there is one an
//! interval, which stands for itself.

use anyhow::Result;
use bpf::runqlat::RunqlatSkel;
use bpf::runqlat::types::group_id;
use budget::meter::losses;
use budget::{Bounded, Groups, Weighted, Window};
use hist::harvest::Group as Waits;
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use loader::counters::Counters;
use profile::rank::Rank;

use crate::runqlat::harvest::{self, Culprit, Interval, QUOTA_TID, WithoutQuota};

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
    /// By victim and thread.
    culprits: Bounded<(u32, u32), Caused>,
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

impl Sums {
    /// Returns how many waits, and how many who caused some, found no room.
    pub(crate) fn add(
        &mut self,
        waits: &[Waits<group_id>],
        culprits: Vec<Culprit>,
        window: &Window,
    ) -> (u64, u64) {
        let weight = window.weight();
        let homeless = self.groups.add(waits, window);
        let mut nameless = 0;
        for culprit in culprits {
            let key = (culprit.victim, culprit.tid);
            let (caused_ns, waits) = (culprit.caused_ns, culprit.waits);
            let make = || Caused {
                caused_ns: Weighted::default(),
                waits: Weighted::default(),
                culprit,
            };
            match self.culprits.entry(key, make) {
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
        Edges { start_ns, end_ns }: Edges,
    ) -> Result<Interval> {
        let elapsed_ns = end_ns - start_ns;
        let scale = self.groups.scale(elapsed_ns);
        let (mut waits, estimates) = self.groups.finish(elapsed_ns);
        waits.rank_by_key(|waits| waits.id.id);
        let mut culprits = ranked(self.culprits.drain().map(|(_, caused)| caused), scale);
        let without_quota = without_quota(&mut culprits);
        Ok(Interval {
            start_ns,
            end_ns,
            waits,
            culprits,
            without_quota,
            quotas: Vec::new(),
            has_nameless_quota: false,
            open: harvest::open_waits(skel)?,
            ready: Vec::new(),
            under_way_at_start: harvest::totals(skel)?.under_way_at_start,
            losses: losses(skel.object(), counters)?,
            estimates,
        })
    }
}

/// Takes out what no task has caused.
fn without_quota(culprits: &mut Vec<Culprit>) -> WithoutQuota {
    let none = WithoutQuota::default();
    let quotas = culprits.extract_if(.., |one| one.tid == QUOTA_TID);
    quotas.fold(none, |sum, quota| WithoutQuota {
        waits: sum.waits + quota.waits,
        sum_ns: sum.sum_ns + quota.caused_ns,
    })
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
            victim: 0,
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
    fn waits_for_quota_are_behind_nobody() {
        let mut culprits = vec![one_wait(7), one_wait(QUOTA_TID), one_wait(8)];
        let without = without_quota(&mut culprits);
        assert_eq!((without.waits, without.sum_ns), (1, 1_000));
        let tids: Vec<u32> = culprits.iter().map(|one| one.tid).collect();
        assert_eq!(tids, [7, 8]);
        assert_eq!(without_quota(&mut culprits), WithoutQuota::default());
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
