//! Histograms out of windows, each added up by what its window stands for.

use hist::Histogram;
use hist::harvest::Group;
use plain::Plain;

use crate::bounded::Bounded;
use crate::tally::{Estimates, Tally};
use crate::windowed::Window;

/// Most histograms of all windows together; each takes half a KiB.
const MOST: usize = 1 << 16;

/// The windows of an interval so far; `I` is the BPF side's `struct group_id`.
pub struct Groups<I> {
    groups: Bounded<Vec<u8>, Group<I>>,
    tally: Tally,
    random: u64,
}

impl<I> Default for Groups<I> {
    fn default() -> Self {
        Self {
            groups: Bounded::new(MOST),
            tally: Tally::default(),
            random: 1,
        }
    }
}

impl<I: Plain + Copy> Groups<I> {
    /// Adds what a window has brought. Returns how many events found no room.
    pub fn add(&mut self, parts: &[Group<I>], window: &Window) -> u64 {
        let (mut count, mut time_ns) = (0, 0);
        let mut homeless = 0;
        for part in parts {
            count += part.histogram.count();
            time_ns += part.histogram.sum();
            // SAFETY: a plain id is as many initialised bytes.
            let key = unsafe { plain::as_bytes(&part.id) }.to_vec();
            let sum = self.groups.entry(key, || Group {
                id: part.id,
                comm: part.comm.clone(),
                histogram: Histogram::default(),
            });
            let (weight, random) = (window.weight(), &mut self.random);
            match sum {
                Some(sum) if weight.is_one() => sum.histogram.merge(&part.histogram),
                Some(sum) => {
                    let weight = weight.number();
                    sum.histogram.add_weighted(&part.histogram, weight, random);
                }
                None => homeless += part.histogram.count(),
            }
        }
        self.tally.add(count, time_ns, window);
        homeless
    }

    /// The interval, `elapsed_ns` long: its groups, in no order, and how sure they are.
    pub fn finish(mut self, elapsed_ns: u64) -> (Vec<Group<I>>, Option<Estimates>) {
        let looked = self.tally.looked();
        let scaled = self.groups.drain().map(|(_, mut group)| {
            if !looked.is_exact() {
                let whole = std::mem::take(&mut group.histogram);
                let scale = looked.scale(elapsed_ns);
                group
                    .histogram
                    .add_weighted(&whole, scale, &mut self.random);
            }
            group
        });
        (scaled.collect(), self.tally.estimates(elapsed_ns))
    }

    /// What all other totals of the interval are to be multiplied by.
    pub fn scale(&self, elapsed_ns: u64) -> f64 {
        self.tally.looked().scale(elapsed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: u64, values: &[u64]) -> Group<u64> {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        Group {
            id,
            comm: "".into(),
            histogram,
        }
    }

    fn window(start_ns: u64, open_ns: u64, stratum_ns: u64) -> Window {
        Window {
            start_ns,
            end_ns: start_ns + open_ns,
            stratum_ns,
        }
    }

    #[test]
    fn what_a_window_shows_stands_for_its_stratum() {
        let mut groups = Groups::default();
        groups.add(&[group(1, &[100; 50])], &window(0, 10, 100));
        groups.add(
            &[group(1, &[100; 50]), group(2, &[7; 10])],
            &window(150, 10, 100),
        );
        // The last 50 ns lie in no stratum.
        let (mut found, estimates) = groups.finish(250);
        found.sort_by_key(|group| group.id);
        let counts: Vec<u64> = found.iter().map(|group| group.histogram.count()).collect();
        assert_eq!(counts, [1_250, 125]);
        assert_eq!(found[0].histogram.sum(), 125_000);
        let estimates = estimates.expect("not everything was looked at");
        assert!((estimates.count.total - 1_375.0).abs() < 1e-9);
        assert!((estimates.looked - 0.08).abs() < 1e-9);
    }

    #[test]
    fn what_was_looked_at_throughout_is_as_it_was() {
        let mut groups = Groups::default();
        groups.add(&[group(1, &[100; 50])], &window(0, 100, 100));
        let (found, estimates) = groups.finish(120);
        assert_eq!(found[0].histogram.count(), 50);
        assert!(estimates.is_none());
    }
}
