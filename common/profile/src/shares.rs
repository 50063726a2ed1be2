//! Values with their shares of all, in two columns of a table.

use std::borrow::Cow;

use crate::escape::terminal;
use crate::events;
use crate::recording::Recording;
use crate::statistics::share;
use crate::table::Column;
use crate::text::{cut, percent};
use crate::units;

/// The whole that values are shares of.
pub(crate) struct Shares<'a> {
    /// Values come from sampling: shown is the samples' share and its 95 % interval. Else they are exact and shown themselves.
    pub(crate) is_sampled: bool,
    pub(crate) unit: &'a str,
    /// Share of all.
    pub(crate) value: u64,
    pub(crate) samples: u64,
}

/// The things that a profile's values are of, in the plural.
pub(crate) fn counted(recording: &Recording) -> Cow<'_, str> {
    let header = &recording.header;
    let first = header.values.first();
    let are_events = first.is_some_and(|value| value.name == "events");
    events::values(if are_events { "events" } else { "samples" }, &header.event)
}

impl Shares<'_> {
    /// Titles over [`Self::cells`].
    pub(crate) fn columns(&self, title: &str) -> [Column; 2] {
        if self.is_sampled {
            let interval = Column::right("95% CI", 10);
            return [Column::right(title, 6).gap(2), interval];
        }
        [Column::right("", 11).gap(2), Column::right(title, 6)]
    }

    /// A value and the samples behind it.
    pub(crate) fn cells(&self, value: u64, samples: u64) -> [String; 2] {
        if self.is_sampled {
            let share = share(samples, self.samples);
            return [percent(samples, self.samples), share.interval()];
        }
        [units::value(value, self.unit), percent(value, self.value)]
    }

    /// A share with what it is of; `of`: what is sampled, in the plural.
    pub(crate) fn said(&self, value: u64, samples: u64, of: &str) -> String {
        if self.is_sampled {
            let share = percent(samples, self.samples);
            if self.unit == "count" && self.value > self.samples {
                // Each of them stands for several.
                let samples = units::counted(self.samples, "samples");
                let all = units::counted(self.value, of);
                return format!("{share} of {samples}, for {all}");
            }
            return format!("{share} of {}", units::counted(self.samples, of));
        }
        let (share, whole) = (
            percent(value, self.value),
            units::value(self.value, self.unit),
        );
        match self.unit {
            "ns" => format!("{share} of {}", units::thread_time(self.value)),
            "count" | "" if !of.is_empty() => {
                format!("{share} of {}", units::counted(self.value, of))
            }
            "bytes" | "count" | "" => format!("{share} of {whole}"),
            unit => match events::sum(unit) {
                Some(sum) => format!("{share} of {whole}, {sum}"),
                None => format!("{share} of {whole} {}", cut(&terminal(unit), 32)),
            },
        }
    }
}
