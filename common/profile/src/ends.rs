//! How complete a profile's user stacks are.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::model::{Profile, StackEnd};
use crate::text::strict_percent;

/// Value behind the user stacks that ended in each way.
#[derive(Clone, Debug, Default)]
pub struct Weights(BTreeMap<StackEnd, u64>);

impl Weights {
    /// Weights in the profile's unit; samples without a user stack are no part.
    fn of(profile: &Profile) -> Self {
        let mut weights = Self::default();
        for sample in &profile.samples {
            weights.add(sample.user_end, sample.total());
        }
        weights
    }

    /// Adds a stack; `None`: there was none.
    pub fn add(&mut self, end: Option<StackEnd>, weight: u64) {
        if let Some(end) = end {
            let sum = self.0.entry(end).or_default();
            *sum = sum.saturating_add(weight);
        }
    }

    /// Completeness of the stacks, whose weights are in that unit; `None` when there are none.
    pub fn describe(&self, unit: &str) -> Option<Ends> {
        let all: u64 = self.0.values().sum();
        if all == 0 {
            return None;
        }
        let share = |weight: u64| strict_percent(weight, all);
        let complete = self.0.get(&StackEnd::Root).copied().unwrap_or(0);
        let others = self
            .0
            .iter()
            .filter_map(|(end, weight)| Some(format!("{} {}", share(*weight), why(*end)?)));
        let of_what = if unit == "ns" { " of the time" } else { "" };
        Some(Ends {
            complete: format!("user stacks complete for {}{of_what}", share(complete)),
            others: others.collect(),
        })
    }

    /// Weights by [`StackEnd::word`].
    pub fn to_json(&self) -> Value {
        let weights = self.0.iter();
        let fields = weights.map(|(end, weight)| (end.word().to_owned(), (*weight).into()));
        Value::Object(fields.collect::<Map<_, _>>())
    }
}

/// Words on how complete user stacks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// `user stacks complete for 99.84% of the time`
    pub complete: String,
    /// Ways in which others ended: `0.15% cut at 127 frames`.
    pub others: Vec<String>,
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.complete)?;
        match self.others.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.others.join(", ")),
        }
    }
}

/// Completeness of a profile's user stacks; `None` when it has none.
pub fn describe(profile: &Profile) -> Option<Ends> {
    Weights::of(profile).describe(profile.unit())
}

/// A profile's [`Weights::to_json`].
pub fn to_json(profile: &Profile) -> Value {
    Weights::of(profile).to_json()
}

fn why(end: StackEnd) -> Option<&'static str> {
    match end {
        StackEnd::Root => None,
        StackEnd::Depth => Some("cut at 127 frames"),
        StackEnd::NoTable => Some("in code without unwind table or frame pointer"),
        StackEnd::Unreadable => Some("at unreadable memory"),
        StackEnd::Unsupported => Some("at unusual call frame information"),
        StackEnd::LeftOut => Some("left out to keep within the budget"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Sample, Task, ValueType};

    fn profile(ends: &[(Option<StackEnd>, u64)]) -> Profile {
        let samples = ends.iter().map(|(end, value)| Sample {
            task: Task::new("x", 1, 1),
            user_end: *end,
            count: 1,
            values: vec![*value],
            ..Sample::default()
        });
        Profile {
            tool: "t",
            values: vec![ValueType::new("blocked", "ns")],
            samples: samples.collect(),
            duration_ns: 1,
        }
    }

    #[test]
    fn shares_are_by_weight_and_never_claim_all() {
        assert_eq!(describe(&profile(&[(None, 5)])), None);
        let whole = profile(&[(Some(StackEnd::Root), 7), (None, 90)]);
        assert_eq!(
            describe(&whole).unwrap().to_string(),
            "user stacks complete for 100% of the time"
        );
        let mixed = profile(&[
            (Some(StackEnd::Root), 999_000),
            (Some(StackEnd::Depth), 999),
            (Some(StackEnd::Unreadable), 1),
        ]);
        assert_eq!(
            describe(&mixed).unwrap().to_string(),
            "user stacks complete for 99.90% of the time; 0.10% cut at 127 frames, <0.01% at unreadable memory"
        );
        assert_eq!(
            to_json(&mixed).to_string(),
            r#"{"depth":999,"root":999000,"unreadable":1}"#
        );
    }
}
