//! What was seen and not counted.

use crate::units;
use serde_json::{Map, Value, json};

/// One kind of loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Stable word for JSON, past participle of what went wrong: `rows_full`.
    pub key: &'static str,
    /// The same for people, in the plural: `intervals not recorded: table full`.
    pub what: &'static str,
    /// Number of events.
    pub count: u64,
    /// Their time, for time-weighted tools, ns.
    pub time_ns: Option<u64>,
}

/// Every counter of a run; zero counts are kept out of people's sight but stay in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// Adds a counter of events, to one of the same key if there is one.
    pub fn count(&mut self, key: &'static str, what: &'static str, count: u64) {
        if let Some(loss) = self.0.iter_mut().find(|loss| loss.key == key) {
            loss.count += count;
            return;
        }
        self.0.push(Loss {
            key,
            what,
            count,
            time_ns: None,
        });
    }

    /// Adds a counter of events with the time they stood for, ns.
    pub fn time(&mut self, key: &'static str, what: &'static str, count: u64, time_ns: u64) {
        self.0.push(Loss {
            key,
            what,
            count,
            time_ns: Some(time_ns),
        });
    }

    /// Adds all of another engine's. An event that both lost counts twice.
    pub fn absorb(&mut self, other: &Self) {
        for loss in &other.0 {
            match self.0.iter_mut().find(|own| own.key == loss.key) {
                Some(own) => {
                    own.count += loss.count;
                    let times = own.time_ns.into_iter().chain(loss.time_ns);
                    own.time_ns = times.reduce(|a, b| a + b);
                }
                None => self.0.push(loss.clone()),
            }
        }
    }

    /// The time behind a counter that has one, ns.
    pub fn time_ns(&self, key: &str) -> u64 {
        let mut losses = self.0.iter();
        losses
            .find(|loss| loss.key == key)
            .and_then(|loss| loss.time_ns)
            .unwrap_or(0)
    }

    /// Whether nothing at all was lost.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|loss| loss.count == 0)
    }

    /// Sum of all counters.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|loss| loss.count).sum()
    }

    /// For the closing line: `lost nothing`, or each loss; times as a share of `of_ns` when that is not 0.
    pub fn describe(&self, of_ns: u64) -> String {
        let parts: Vec<String> = self
            .0
            .iter()
            .filter(|loss| loss.count > 0)
            .map(|loss| loss.describe(of_ns))
            .collect();
        if parts.is_empty() {
            "lost nothing".into()
        } else {
            format!("LOST {}", parts.join(", "))
        }
    }

    /// For JSON: every counter by its key, times as `KEY_ns`.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        for loss in &self.0 {
            object.insert(loss.key.into(), json!(loss.count));
            if let Some(time_ns) = loss.time_ns {
                object.insert(format!("{}_ns", loss.key), json!(time_ns));
            }
        }
        Value::Object(object)
    }
}

impl Loss {
    fn describe(&self, of_ns: u64) -> String {
        let what = units::counted(self.count, self.what);
        match self.time_ns {
            Some(time_ns) if of_ns > 0 => {
                let share = 100.0 * time_ns as f64 / of_ns as f64;
                format!("{what} ({share:.2}% of the time)")
            }
            _ => what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_counts_are_silent_for_people_and_present_in_json() {
        let mut losses = Losses::default();
        losses.count("ring_full", "stacks: ring full", 0);
        assert!(losses.is_empty());
        assert_eq!(losses.describe(0), "lost nothing");
        losses.time("rows_full", "intervals: table full", 3, 250);
        assert_eq!(
            losses.describe(1000),
            "LOST 3 intervals: table full (25.00% of the time)"
        );
        assert_eq!(
            losses.to_json(),
            json!({"ring_full": 0, "rows_full": 3, "rows_full_ns": 250})
        );
        assert_eq!(losses.total(), 3);
        assert_eq!(
            (losses.time_ns("rows_full"), losses.time_ns("ring_full")),
            (250, 0)
        );
        losses.count("unseen", "waits: end not seen", 1);
        assert!(losses.describe(0).ends_with(", 1 wait: end not seen"));
        let mut both = losses.clone();
        both.absorb(&losses);
        let sums = json!({"ring_full": 0, "rows_full": 6, "rows_full_ns": 500, "unseen": 2});
        assert_eq!(both.to_json(), sums);
    }
}
