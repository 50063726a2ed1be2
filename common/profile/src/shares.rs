//! Values with their shares of all, in two columns of a table.

use crate::statistics::share;
use crate::table::Column;
use crate::text::percent;
use crate::units;

/// The whole that values are shares of.
pub(crate) struct Shares<'a> {
    /// Values come from sampling: shown is the samples' share with its 95 % interval. Else they are exact and shown themselves.
    pub(crate) is_sampled: bool,
    pub(crate) unit: &'a str,
    /// Share of all.
    pub(crate) value: u64,
    pub(crate) samples: u64,
}

impl Shares<'_> {
    /// Titles over [`Self::cells`].
    pub(crate) fn columns(&self, title: &str) -> [Column; 2] {
        let [left, right] = if self.is_sampled { [7, 7] } else { [11, 6] };
        [Column::right("", left).gap(2), Column::right(title, right)]
    }

    /// A value and the samples behind it.
    pub(crate) fn cells(&self, value: u64, samples: u64) -> [String; 2] {
        if self.is_sampled {
            let share = share(samples, self.samples);
            let margin = 100.0 * share.margin();
            [
                format!("{:.1}", 100.0 * share.share),
                format!("±{margin:>4.1} %"),
            ]
        } else {
            [units::value(value, self.unit), percent(value, self.value)]
        }
    }
}
