//! What a sum of intervals lies between.

use anyhow::{Result, ensure};

/// An interval as one log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// ns.
    pub begin_ns: u64,
    /// It did not end earlier, ns.
    pub end_ns: u64,
    /// Nor later, ns: more than `end_ns` where no event showed the end (some kernels hide switches from BPF).
    pub end_at_most_ns: u64,
}

impl Interval {
    /// With an end that was seen.
    pub fn seen(begin_ns: u64, end_ns: u64) -> Self {
        Self {
            begin_ns,
            end_ns,
            end_at_most_ns: end_ns,
        }
    }
}

/// An interval as both logs have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Of the log before the tool.
    pub early: Interval,
    /// Of the log after it.
    pub late: Interval,
}

impl Pair {
    /// A tool between the logs has not less, ns.
    pub fn least_ns(&self) -> u64 {
        self.early.end_ns.saturating_sub(self.late.begin_ns)
    }

    /// Nor more, ns.
    pub fn most_ns(&self) -> u64 {
        self.late.end_at_most_ns - self.early.begin_ns
    }
}

/// Intervals of one thread that a tool counts, and how many more there were, whose ends no event showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// In order.
    pub counted: Vec<Interval>,
    /// The others.
    pub hidden: u64,
}

/// Bounds of a sum of intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bracket {
    /// Number of intervals, exactly.
    pub count: u64,
    /// The sum is not less, ns.
    pub least_ns: u64,
    /// Nor more, ns.
    pub most_ns: u64,
    /// Intervals in neither.
    pub hidden: u64,
}

impl Bracket {
    /// Of the same intervals as the log before the tool and the log after it have them.
    ///
    /// # Errors
    ///
    /// When they have not the same: the logs, not the tool, are to blame.
    pub fn of(before: &Intervals, after: &Intervals) -> Result<Self> {
        let counts = (before.counted.len(), after.counted.len());
        ensure!(counts.0 == counts.1, "the logs have {counts:?} intervals");
        ensure!(
            before.hidden == after.hidden,
            "the logs miss the ends of {} and {} intervals",
            before.hidden,
            after.hidden
        );
        let pairs = before.counted.iter().zip(&after.counted);
        let pairs = pairs.map(|(&early, &late)| Pair { early, late });
        Ok(Self {
            hidden: before.hidden,
            ..pairs.collect()
        })
    }

    /// Whether a tool may say so.
    pub fn holds(&self, count: u64, sum_ns: u64) -> bool {
        count == self.count && (self.least_ns..=self.most_ns).contains(&sum_ns)
    }
}

impl FromIterator<Pair> for Bracket {
    fn from_iter<P: IntoIterator<Item = Pair>>(pairs: P) -> Self {
        pairs.into_iter().fold(Self::default(), |sum, pair| Self {
            count: sum.count + 1,
            least_ns: sum.least_ns + pair.least_ns(),
            most_ns: sum.most_ns + pair.most_ns(),
            hidden: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(edges: &[(u64, u64)]) -> Intervals {
        let interval = |&(begin_ns, end_ns)| Interval::seen(begin_ns, end_ns);
        Intervals {
            counted: edges.iter().map(interval).collect(),
            hidden: 0,
        }
    }

    #[test]
    fn disturbance_widens_the_bracket() {
        let before = seen(&[(100, 200), (300, 400)]);
        let after = seen(&[(101, 202), (350, 403)]);
        let bracket = Bracket::of(&before, &after).expect("the same intervals");
        assert_eq!((bracket.least_ns, bracket.most_ns), (99 + 50, 102 + 103));
        assert!(bracket.holds(2, 149) && bracket.holds(2, 205));
        assert!(!bracket.holds(2, 148) && !bracket.holds(2, 206) && !bracket.holds(1, 150));
    }

    #[test]
    fn different_logs_are_refused() {
        Bracket::of(&seen(&[(1, 2)]), &seen(&[])).expect_err("one has none");
    }
}
