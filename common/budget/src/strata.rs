//! Where windows lie: time is cut into strata, each of which has one window at a random place.

use hist::random::uniform;

use crate::controller::Plan;

/// Lengths of strata are what is planned, less and more up to this share of it. Strata of one length, and 100 ms is what most
/// plans have, would keep step with loads that have a period, a throttled cgroup first of all: windows fall upon a stratum's
/// middle more often than upon its ends, so that a load would be seen in one phase only.
const UNEVEN: f64 = 0.4;

/// The stratum under way.
#[derive(Debug)]
pub(super) struct Strata {
    start_ns: u64,
    /// Where nothing is left out, 0.
    length_ns: u64,
    random: u64,
}

impl Strata {
    /// The first one begins at `now`, ns.
    pub(super) fn new(now: u64) -> Self {
        Self {
            start_ns: now,
            length_ns: 0,
            random: now | 1,
        }
    }

    /// When it began, ns.
    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// The first window has been opened, and the first stratum begins with it.
    pub(super) fn begin(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
    }

    /// When the next window is to open, ns.
    pub(super) fn next(&mut self, plan: Plan, now: u64) -> u64 {
        let Plan::Windows {
            open_ns,
            stratum_ns,
        } = plan
        else {
            self.length_ns = 0;
            return self.start_ns;
        };
        let share = 1.0 + UNEVEN * (2.0 * uniform(&mut self.random) - 1.0);
        self.length_ns = (share * stratum_ns as f64) as u64;
        if now > self.start_ns + self.length_ns {
            // The last window took so long, waiting for what is under way, that this one would open the moment that ends, and
            // stand for all that time. It is nobody's.
            self.start_ns = now;
        }
        let room = self.length_ns.saturating_sub(open_ns);
        self.start_ns + (uniform(&mut self.random) * room as f64) as u64
    }

    /// A window is over, that was to be over at `planned_end_ns`; without one everything has been looked at. Returns the length
    /// of the time that it stands for, ns.
    pub(super) fn finish(
        &mut self,
        start_ns: u64,
        end_ns: u64,
        planned_end_ns: Option<u64>,
    ) -> u64 {
        let since_ns = end_ns.saturating_sub(self.start_ns);
        let (stratum_end_ns, stands_for_ns) = match planned_end_ns {
            Some(planned_end_ns) if end_ns < planned_end_ns => {
                // Cut short: each moment of it counts for as much as planned, or else some microseconds, in which we have just
                // run, would stand for a whole stratum.
                let weight = self.length_ns as f64 / (planned_end_ns - start_ns) as f64;
                let stands_for = weight * (end_ns - start_ns) as f64;
                (end_ns, since_ns.min(stands_for as u64))
            }
            Some(_) => {
                let stratum_end_ns = end_ns.max(self.start_ns + self.length_ns);
                (stratum_end_ns, stratum_end_ns - self.start_ns)
            }
            None => (end_ns, since_ns),
        };
        self.start_ns = stratum_end_ns;
        stands_for_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;

    const MS: u64 = 1_000_000;

    /// Estimates, with their margins, of how long something held in 30 s that holds for the first 20 ms of every `period_ns`, which
    /// begin `phase_ns` late; looked at for 40 ms of every 100.
    fn estimated(period_ns: u64, phase_ns: u64, seed: u64) -> (f64, f64) {
        let mut strata = Strata::new(seed);
        let (began_ns, plan) = (
            strata.start_ns(),
            Plan::Windows {
                open_ns: 40 * MS,
                stratum_ns: 100 * MS,
            },
        );
        let held_until = |at_ns: u64| {
            let at_ns = at_ns - began_ns + phase_ns;
            at_ns / period_ns * 20 * MS + (at_ns % period_ns).min(20 * MS)
        };
        let mut series = Series::default();
        while strata.start_ns() < began_ns + 30_000 * MS {
            let open_at_ns = strata.next(plan, strata.start_ns());
            let shut_at_ns = open_at_ns + 40 * MS;
            let stratum_ns = strata.finish(open_at_ns, shut_at_ns, Some(shut_at_ns));
            let seen_ns = held_until(shut_at_ns) - held_until(open_at_ns);
            series.push(seen_ns as f64, 40 * MS, stratum_ns);
        }
        let estimate = series.estimate(1.0);
        let truth_ns = (held_until(strata.start_ns()) - held_until(began_ns)) as f64;
        (estimate.total / truth_ns, estimate.margin / truth_ns)
    }

    #[test]
    fn loads_in_step_with_the_planned_length_are_inside_their_margins() {
        for period_ms in [50, 100, 200] {
            let mut inside = 0;
            for run in 0..100 {
                let phase_ns = run * period_ms * MS / 100;
                let (share, margin) = estimated(period_ms * MS, phase_ns, 1_000_003 * (run + 1));
                inside += u32::from((share - 1.0).abs() <= margin);
            }
            assert!(inside >= 90, "{inside} of 100 with {period_ms} ms");
        }
    }

    /// Looks whether a load without memory runs in a millisecond: in a quarter of them.
    fn runs(millisecond: u64) -> bool {
        let mut random = millisecond + 1;
        uniform(&mut random);
        uniform(&mut random) < 0.25
    }

    fn ran_ns(time: std::ops::Range<u64>) -> u64 {
        let milliseconds = (time.start / MS..time.end.div_ceil(MS)).filter(|at| runs(*at));
        let inside = |at: u64| ((at + 1) * MS).min(time.end) - (at * MS).max(time.start);
        milliseconds.map(inside).sum()
    }

    /// Each millisecond counts for as much as lies in windows, times their weight, less its length: so much is the estimate off
    /// where the load runs in it. These are independent, and their mean is 0 as the load has no memory, so that Bernstein's
    /// inequality bounds the sum: https://en.wikipedia.org/wiki/Bernstein_inequalities_(probability_theory)
    #[test]
    fn ten_thousand_windows_are_off_by_no_more_than_one_in_a_million_is() {
        let mut strata = Strata::new(1_000 * MS);
        let plan = Plan::Windows {
            open_ns: 40 * MS,
            stratum_ns: 100 * MS,
        };
        let mut series = Series::default();
        let (mut variance, mut largest) = (0.0, 0.0_f64);
        for _ in 0..10_000 {
            let open_at_ns = strata.next(plan, strata.start_ns());
            let shut_at_ns = open_at_ns + 40 * MS;
            let stratum_ns = strata.finish(open_at_ns, shut_at_ns, Some(shut_at_ns));
            series.push(ran_ns(open_at_ns..shut_at_ns) as f64, 40 * MS, stratum_ns);
            let unseen_ns = (stratum_ns - 40 * MS) as f64;
            let excess = stratum_ns as f64 / (40 * MS) as f64 - 1.0;
            let squares = (40 * MS) as f64 * excess * excess + unseen_ns;
            variance += 0.25 * 0.75 * MS as f64 * squares;
            largest = largest.max(excess.max(1.0) * MS as f64);
        }
        let off_ns = series.estimate(1.0).total - ran_ns(1_000 * MS..strata.start_ns()) as f64;
        let log = 2e6_f64.ln();
        let jump = largest * log / 3.0;
        let bound_ns = jump + (jump * jump + 2.0 * variance * log).sqrt();
        assert!(off_ns.abs() <= bound_ns, "off by {off_ns}, not {bound_ns}");
    }

    #[test]
    fn a_window_that_is_cut_short_stands_for_its_own_share() {
        let mut strata = Strata::new(1_000 * MS);
        let plan = Plan::Windows {
            open_ns: 10 * MS,
            stratum_ns: 100 * MS,
        };
        let start_ns = strata.next(plan, 1_000 * MS);
        let weight = strata.length_ns as f64 / (10 * MS) as f64;
        assert!((6.0..=14.0).contains(&weight), "{weight}");
        let end_ns = start_ns + MS / 1000;
        let stands_for_ns = strata.finish(start_ns, end_ns, Some(start_ns + 10 * MS));
        let most_ns = (weight * MS as f64 / 1000.0) as u64;
        assert_eq!(stands_for_ns, most_ns.min(end_ns - 1_000 * MS));
        assert_eq!(strata.start_ns(), end_ns);
    }

    #[test]
    fn time_that_nobody_stands_for_is_left_out() {
        let mut strata = Strata::new(1_000 * MS);
        let plan = Plan::Windows {
            open_ns: 10 * MS,
            stratum_ns: 100 * MS,
        };
        assert!(strata.next(plan, 2_000 * MS) >= 2_000 * MS);
        assert_eq!(strata.start_ns(), 2_000 * MS);
    }
}
