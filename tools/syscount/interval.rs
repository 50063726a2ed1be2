//! An interval that is over, as plain data.

use budget::cost::Cost;
use profile::losses::Losses;

use crate::syscount::harvest::Row;

/// One report's worth.
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) rows: Vec<Row>,
    /// Since the start of the run.
    pub(crate) under_way_at_start: u64,
    /// Since the start of the run.
    pub(crate) losses: Losses,
    /// Since the start of the run.
    pub(crate) cost: Cost,
}
