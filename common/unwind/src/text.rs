//! Where a file has code.

use std::ops::Range;

/// The address ranges of executable segments, sorted.
pub(crate) struct Text(Vec<Range<u64>>);

impl Text {
    pub(crate) fn new(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        Self(ranges)
    }

    /// The part of a function that is in the file's code. Linkers leave descriptions of discarded functions behind.
    pub(crate) fn clip(&self, start: u64, length: u64) -> Option<Range<u64>> {
        let end = start.checked_add(length)?;
        let after = self.0.partition_point(|range| range.start <= start);
        let range = self.0.get(after.checked_sub(1)?)?;
        let end = end.min(range.end);
        (start < end).then_some(start..end)
    }
}
