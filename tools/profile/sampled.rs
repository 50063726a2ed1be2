//! A collection in windows: what each of them showed, added up by what it stands for. Without a budget there is one, which stands
//! for itself.

use budget::{Bounded, Series, Weighted, Window};
use host::clock::Edges;
use profile::losses::Losses;
use profile::model::Task;

use crate::profile::harvest::{Estimates, Harvest, Idle, Row, Totals};

/// Most rows of all windows together; one has 65,536 at most.
const MOST_ROWS: usize = 1 << 18;

/// The windows so far.
pub(crate) struct Sums {
    /// Samples and weight, by task, user stack and kernel stack.
    rows: Bounded<(Task, u64, u64), (Weighted, Weighted)>,
    /// Samples that found no room there.
    rows_full: Weighted,
    totals: [Weighted; 4],
    samples: Series,
    weight: Series,
    /// Totals in the map at the last edge.
    before: Totals,
    /// Idle time of all CPUs when the window opened, ns.
    pub(crate) idle_before_ns: u64,
    /// The same while it was open; and its end was looked at so long after it, ns.
    pub(crate) idle: Idle,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            rows: Bounded::new(MOST_ROWS),
            rows_full: Weighted::default(),
            totals: [Weighted::default(); 4],
            samples: Series::default(),
            weight: Series::default(),
            before: Totals::default(),
            idle_before_ns: 0,
            idle: Idle::default(),
        }
    }
}

impl Sums {
    /// `totals` are those in the map, since the start of the run.
    pub(crate) fn add(&mut self, rows: Vec<Row>, totals: Totals, window: &Window) {
        let weight = window.weight();
        let seen = figures(&totals).into_iter().zip(figures(&self.before));
        for (sum, (now, before)) in self.totals.iter_mut().zip(seen) {
            sum.add(now - before, weight);
        }
        self.before = totals;
        let (mut samples, mut weights) = (0.0, 0.0);
        for row in rows {
            samples += row.samples as f64;
            weights += row.weight as f64;
            match self
                .rows
                .entry((row.task, row.user, row.kernel), Default::default)
            {
                Some(sum) => {
                    sum.0.add(row.samples, weight);
                    sum.1.add(row.weight, weight);
                }
                None => self.rows_full.add(row.samples, weight),
            }
        }
        let (open_ns, stratum_ns) = (window.open_ns(), window.stratum_ns);
        self.samples.push(samples, open_ns, stratum_ns);
        self.weight.push(weights, open_ns, stratum_ns);
    }

    pub(crate) fn harvest(mut self, scale: f64, window: Edges) -> Harvest {
        let mut random = 1;
        let mut whole = |sum: Weighted| sum.whole_fairly(scale, &mut random);
        let rows = self.rows.drain().map(|((task, user, kernel), sum)| Row {
            task,
            user,
            kernel,
            samples: whole(sum.0),
            weight: whole(sum.1),
        });
        let rows = rows.filter(|row| row.samples > 0 || row.weight > 0);
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable_by(|one, other| one.place().cmp(&other.place()));
        let [events, idle, others, samples] = self.totals.map(|total| total.whole(scale));
        let mut losses = Losses::default();
        losses.count(
            "windows_full",
            "samples: table of all windows full",
            self.rows_full.whole(scale),
        );
        Harvest {
            rows,
            totals: Totals {
                events,
                idle: idle.min(events),
                others,
                samples,
            },
            losses,
            window,
            // A clock's ticks are held to the kernel's account only where all of them were taken.
            expected: None,
            estimates: Some(Estimates {
                samples: self.samples.estimate_events(scale),
                weight: self.weight.estimate(scale),
                looked: 1.0,
            }),
            quotas: Vec::new(),
        }
    }
}

fn figures(totals: &Totals) -> [u64; 4] {
    [totals.events, totals.idle, totals.others, totals.samples]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(number: u64) -> Window {
        Window {
            start_ns: number * 100,
            end_ns: number * 100 + 2,
            stratum_ns: 100,
        }
    }

    #[test]
    fn windows_without_samples_do_not_make_sure_of_it() {
        let mut sums = Sums::default();
        for number in 0..20 {
            sums.add(Vec::new(), Totals::default(), &window(number));
        }
        let harvest = sums.harvest(1.0, Edges::default());
        let estimates = harvest.estimates.expect("not all was looked at");
        let line = |is_weighed| estimates.describe("cpu-clock", is_weighed);
        assert!(
            line(false).ends_with("all cpu-clock at most 149"),
            "{}",
            line(false)
        );
        assert!(
            line(true).ends_with("\u{b1}? (nothing seen)"),
            "{}",
            line(true)
        );
    }
}
