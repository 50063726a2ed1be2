//! The look of a report for people.

use profile::style::Style;

/// Looks of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) style: Style,
    /// The columns are explained.
    pub(crate) legend: bool,
}
