//! Two profiles in numbers that can be compared: shares of their totals, values a second, or values.

use super::chance::{Judged, judge, judged};
use crate::recording::Recording;
use crate::text;
use crate::tree::Side;
use crate::units;

/// A way to make numbers that can be compared of two profiles' values.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scale {
    /// Parts of each profile's own total, 0 to 1.
    #[default]
    Shares,
    /// Values in one unit, per second or as they are.
    Values(Values),
}

/// Values, in one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// Worth of each side's values, in `unit`: 1, or a sample's period.
    worth: [f64; 2],
    /// Length of each side's recording, for rates.
    seconds: Option<[f64; 2]>,
    unit: String,
}

/// A side of unknown length, which has no rates: 0 is BASE, 1 is NEW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLength(pub usize);

impl Values {
    /// Values as they are; samples of clocks that differ are worth their periods.
    pub fn totals(base: &Recording, new: &Recording) -> Self {
        let both = [base, new];
        let periods = both.map(|recording| recording.header.period_ns);
        let are_samples = both.iter().all(|recording| recording.unit() == "count");
        let is_time = are_samples && periods.iter().all(|period| *period > 0);
        if is_time && periods[0] != periods[1] {
            return Self {
                worth: periods.map(|period| period as f64),
                seconds: None,
                unit: "ns".into(),
            };
        }
        Self {
            worth: [1.0; 2],
            seconds: None,
            unit: new.unit().to_owned(),
        }
    }

    /// Values per second that was recorded.
    ///
    /// # Errors
    ///
    /// A side that does not say how long that was.
    pub fn rates(base: &Recording, new: &Recording) -> Result<Self, NoLength> {
        let lengths = [base, new].map(|recording| recording.header.duration_ns);
        if let Some(side) = lengths.iter().position(|length| *length == 0) {
            return Err(NoLength(side));
        }
        Ok(Self {
            seconds: Some(lengths.map(|length| length as f64 / 1e9)),
            ..Self::totals(base, new)
        })
    }

    /// Tells if they are per second.
    pub fn are_rates(&self) -> bool {
        self.seconds.is_some()
    }

    /// Value of each side, or its rate.
    pub fn levels(&self, sides: &[Side; 2]) -> [f64; 2] {
        [0, 1].map(|side| sides[side].total as f64 * self.each(side))
    }

    /// Level that a value of 1 makes.
    fn each(&self, side: usize) -> f64 {
        self.worth[side] / self.seconds.map_or(1.0, |seconds| seconds[side])
    }

    /// Word for what is counted, to stand behind a level.
    pub fn noun(&self) -> &'static str {
        noun(&self.unit)
    }

    /// One standard error of the difference, if there is none: events come independently of each other, each with its weight
    /// (a compound Poisson process), at one rate that both sides estimate together.
    fn error(&self, part: &[Side; 2]) -> f64 {
        let lengths = self.seconds.unwrap_or([1.0; 2]);
        // The rate that both estimate, in the unit.
        let squares = |side: usize| part[side].squares * self.worth[side];
        let per_second = (squares(0) + squares(1)) / (lengths[0] + lengths[1]);
        let of_side = |side: usize| self.worth[side] / lengths[side];
        (per_second * (of_side(0) + of_side(1))).sqrt()
    }

    /// A level for people.
    pub fn text(&self, level: f64) -> String {
        match self.unit.as_str() {
            "ns" | "bytes" => units::value(level.round() as u64, &self.unit),
            _ if self.seconds.is_some() && level < 99.5 => units::three_digits(level),
            _ => units::count(level.round() as u64),
        }
    }
}

/// Word for what a value of this unit counts, where the number does not say.
fn noun(unit: &str) -> &'static str {
    match unit {
        "count" | "" => " samples",
        _ => "",
    }
}

impl Scale {
    /// Compares a box: `whole` is what both profiles have in all.
    pub fn judge(&self, part: &[Side; 2], whole: &[Side; 2]) -> Judged {
        match self {
            Self::Shares => judge(part, whole),
            Self::Values(values) => {
                let (levels, error) = (values.levels(part), values.error(part));
                // A side without samples has a rate, too: none in as many seconds.
                let is_known = whole.iter().all(|side| side.count > 0 || side.total == 0);
                judged(levels, error, is_known)
            }
        }
    }

    /// A change as a part of the larger whole, -1 to 1.
    pub fn relative(&self, judged: &Judged, whole: &[Side; 2]) -> f64 {
        let full = match self {
            Self::Shares => 1.0,
            Self::Values(values) => values.levels(whole).into_iter().fold(0.0, f64::max),
        };
        judged.change() / full.max(f64::MIN_POSITIVE)
    }

    /// Both whole profiles in a sentence without its end.
    pub fn sentence(&self, whole: &[Side; 2], units: [&str; 2]) -> String {
        let values = match self {
            Self::Shares => {
                let [base, new] = [0, 1].map(|side| units::value(whole[side].total, units[side]));
                let [of_base, of_new] = units.map(noun);
                let of_new = if of_base == of_new { "" } else { of_new };
                return format!(
                    "BASE has {base}{of_base}, NEW {new}{of_new}; shares of each are compared"
                );
            }
            Self::Values(values) => values,
        };
        let [base, new] = values.levels(whole).map(|level| values.text(level));
        let noun = values.noun();
        match values.seconds {
            Some(_) => format!("BASE has {base}{noun} a second, NEW {new}; these are compared"),
            None => format!("BASE has {base}{noun}, NEW {new}; values are compared as they are"),
        }
    }

    /// A level of the table: with two digits, since others are beside it.
    pub(super) fn cell(&self, level: f64) -> String {
        match self {
            Self::Shares => format!("{:.2}%", 100.0 * level),
            Self::Values(values) => values.text(level),
        }
    }

    /// A change of the table.
    pub(super) fn change(&self, change: f64) -> String {
        match self {
            Self::Shares => format!("{:+.2}pp", 100.0 * change),
            Self::Values(values) => {
                let sign = if change < 0.0 { "-" } else { "+" };
                format!("{sign}{}", values.text(change.abs()))
            }
        }
    }

    /// The whole that a level is a part of, or the time that it is for, to stand behind a number.
    pub(super) fn of(&self, unit: &str) -> &'static str {
        match (self, unit) {
            (Self::Values(values), _) if values.are_rates() => " a second",
            (Self::Values(_), _) => "",
            (Self::Shares, "ns") => " of the time",
            (Self::Shares, "bytes") => " of the bytes",
            (Self::Shares, _) => " of the samples",
        }
    }

    /// A box's levels and their difference, in a picture.
    pub(crate) fn words(&self, judged: &Judged) -> String {
        let [base, new] = match self {
            Self::Shares => judged.levels.map(text::share),
            Self::Values(values) => judged.levels.map(|level| values.text(level)),
        };
        let (change, each) = match self {
            Self::Shares => {
                let points = 100.0 * judged.change();
                (format!("{points:+.2} percentage points"), "")
            }
            Self::Values(values) => {
                let each = values.seconds.map_or("", |_| " a second");
                (self.change(judged.change()), each)
            }
        };
        format!("{base}{each} in BASE, {new}{each} in NEW: {change}")
    }
}
