//! What a sum of intervals lies between.

use std::ops::{Range, RangeInclusive};

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

    fn span(&self) -> Range<u64> {
        self.begin_ns..self.end_at_most_ns.max(self.begin_ns)
    }

    fn meets(&self, other: &Self) -> bool {
        self.begin_ns < other.end_at_most_ns && other.begin_ns < self.end_at_most_ns
    }

    /// Of no length where it lies outside.
    fn clipped(&self, edges: &Range<u64>) -> Self {
        let clip = |ns: u64| ns.clamp(edges.start, edges.end);
        Self {
            begin_ns: clip(self.begin_ns),
            end_ns: clip(self.end_ns),
            end_at_most_ns: clip(self.end_at_most_ns),
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
    pub(crate) fn of(early: Interval, late: Interval) -> Self {
        Self { early, late }
    }

    /// What of it lies in that time.
    #[must_use]
    pub fn clipped(&self, edges: &Range<u64>) -> Self {
        Self {
            early: self.early.clipped(edges),
            late: self.late.clipped(edges),
        }
    }

    /// What it has in common with another one; `None`: nothing, in either log.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let [early, late] = [(&self.early, &other.early), (&self.late, &other.late)]
            .map(|(own, other)| (own.meets(other), own.clipped(&other.span())));
        (early.0 || late.0).then_some(Self {
            early: early.1,
            late: late.1,
        })
    }

    /// A tool between the logs has not less, ns.
    pub fn least_ns(&self) -> u64 {
        self.early.end_ns.saturating_sub(self.late.begin_ns)
    }

    /// Nor more, ns.
    pub fn most_ns(&self) -> u64 {
        self.late.end_at_most_ns - self.early.begin_ns
    }
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
    /// Nor is any of them longer, ns.
    pub longest_ns: u64,
}

impl Bracket {
    /// Whether a tool may say so.
    pub fn holds(&self, count: u64, sum_ns: u64) -> bool {
        self.holds_without(0, count, sum_ns)
    }

    /// The same of a tool that says that it missed as many as that, at most: whichever they are.
    pub fn holds_without(&self, missed: u64, count: u64, sum_ns: u64) -> bool {
        let missing = self.count.saturating_sub(count);
        let least_ns = self
            .least_ns
            .saturating_sub(missing.saturating_mul(self.longest_ns));
        count <= self.count && missing <= missed && (least_ns..=self.most_ns).contains(&sum_ns)
    }
}

impl FromIterator<Pair> for Bracket {
    fn from_iter<P: IntoIterator<Item = Pair>>(pairs: P) -> Self {
        pairs.into_iter().fold(Self::default(), |sum, pair| Self {
            count: sum.count + 1,
            least_ns: sum.least_ns + pair.least_ns(),
            most_ns: sum.most_ns + pair.most_ns(),
            longest_ns: sum.longest_ns.max(pair.most_ns()),
        })
    }
}

/// As many of them begin in that time, at least and at most: an edge may lie between the logs' moments of one event.
pub fn begun_in(pairs: impl Iterator<Item = Pair>, edges: &Range<u64>) -> RangeInclusive<u64> {
    counted(pairs.map(|pair| {
        let logs = [&pair.early, &pair.late];
        logs.map(|one| edges.contains(&one.begin_ns))
    }))
}

/// As many of them are under way at that moment.
pub fn across(pairs: impl Iterator<Item = Pair>, edge_ns: u64) -> RangeInclusive<u64> {
    counted(pairs.map(|pair| {
        let logs = [&pair.early, &pair.late];
        logs.map(|one| one.begin_ns < edge_ns && edge_ns < one.end_ns)
    }))
}

/// Of those that hold in both logs, and in one of them.
fn counted(pairs: impl Iterator<Item = [bool; 2]>) -> RangeInclusive<u64> {
    let (least, most) = pairs.fold((0, 0), |(least, most), [early, late]| {
        (
            least + u64::from(early && late),
            most + u64::from(early || late),
        )
    });
    least..=most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbance_widens_the_bracket() {
        let pair = |early: (u64, u64), late: (u64, u64)| {
            let seen = |(begin_ns, end_ns)| Interval::seen(begin_ns, end_ns);
            Pair::of(seen(early), seen(late))
        };
        let pairs = [pair((100, 200), (101, 202)), pair((300, 400), (350, 403))];
        let bracket: Bracket = pairs.into_iter().collect();
        assert_eq!((bracket.least_ns, bracket.most_ns), (99 + 50, 102 + 103));
        assert!(bracket.holds(2, 149) && bracket.holds(2, 205));
        assert!(!bracket.holds(2, 148) && !bracket.holds(2, 206) && !bracket.holds(1, 150));
        // Without the longer one.
        assert!(bracket.holds_without(1, 1, 100) && !bracket.holds_without(1, 1, 45));
        assert!(!bracket.holds_without(0, 1, 100) && !bracket.holds_without(1, 3, 150));
        let inside = pairs[1].clipped(&(340..380));
        assert_eq!((inside.least_ns(), inside.most_ns()), (30, 40));
    }
}
