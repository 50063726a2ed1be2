//! Columns that are computed when a profile is written, and left out when it is read.

/// Time by the samples of a clock, as Go's own profiles have it.
pub(crate) const CLOCK: (&str, &str) = ("cpu", "nanoseconds");
/// Sum of the values of one unit.
pub(crate) const TOTAL: &str = "total";
