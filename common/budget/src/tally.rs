//! Events out of windows: how many there were in all, how long they took, and how sure that is.

use profile::text::{WIDTH, sentence};
use serde_json::{Value, json};

use crate::looked::Looked;
use crate::series::{Estimate, Series};
use crate::windowed::Window;

/// The windows so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    count: Series,
    time: Series,
    looked: Looked,
}

/// How sure the numbers of a collection, or of an interval of it, are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimates {
    /// Events.
    pub count: Estimate,
    /// Their time, ns.
    pub time: Estimate,
    /// Share of the time that was looked at.
    pub looked: f64,
}

impl Tally {
    /// Adds a window in which `count` events were seen that took `time_ns`.
    pub(super) fn add(&mut self, count: u64, time_ns: u64, window: &Window) {
        let (open_ns, stratum_ns) = (window.open_ns(), window.stratum_ns);
        self.count.push(count as f64, open_ns, stratum_ns);
        self.time.push(time_ns as f64, open_ns, stratum_ns);
        self.looked.add(window);
    }

    /// How much of the time was looked at.
    pub(super) fn looked(&self) -> Looked {
        self.looked
    }

    /// Of `elapsed_ns`, in which there may have been no window; `None` where nothing was left out.
    pub(super) fn estimates(&self, elapsed_ns: u64) -> Option<Estimates> {
        if !self.looked.is_any() {
            return Some(Estimates {
                count: Estimate::UNKNOWN,
                time: Estimate::UNKNOWN,
                looked: 0.0,
            });
        }
        let scale = self.looked.scale(elapsed_ns);
        (!self.looked.is_exact()).then(|| Estimates {
            count: self.count.estimate_events(scale),
            time: self.time.estimate(scale),
            looked: self.looked.share(elapsed_ns),
        })
    }
}

impl Estimates {
    /// The line or two below a report. `what`: the events, in the plural.
    pub fn describe(&self, what: &str) -> String {
        if self.looked == 0.0 {
            return format!("not traced: {what} are not known (--max-overhead)");
        }
        let looked = 100.0 * self.looked;
        let parts = [
            format!(
                "estimated, tracing {looked:.1}% of the time: number of {what} {}",
                self.count.describe()
            ),
            format!("their time {}", self.time.describe()),
        ];
        sentence(&parts, ",", WIDTH).join("\n")
    }

    /// For JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "count": self.count.to_json(),
            "sum_ns": self.time.to_json(),
            "looked": self.looked,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_saw_nothing_do_not_make_sure_of_it() {
        let mut tally = Tally::default();
        for number in 0..20 {
            let start_ns = number * 100;
            let end_ns = start_ns + 10;
            tally.add(
                0,
                0,
                &Window {
                    start_ns,
                    end_ns,
                    stratum_ns: 100,
                },
            );
        }
        let estimates = tally.estimates(2_000).expect("not all was looked at");
        assert!((25.0..35.0).contains(&estimates.count.margin));
        assert!(estimates.time.margin.is_infinite());
        assert_eq!(
            estimates.describe("waits"),
            "estimated, tracing 10.0% of the time: number of waits at most 29,\n  their time \u{b1}? (nothing seen)"
        );
    }
}
