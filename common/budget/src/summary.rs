//! What keeping within the budget took, in words and in JSON.

use profile::units;
use serde_json::{Value, json};

use crate::is_limit;
use crate::left_out::LeftOut;

/// Of one collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// The limit, percent of the machine's CPU time.
    pub percent: f64,
    /// CPU time of the collection, ns.
    pub spent_ns: u64,
    /// Its length, ns.
    pub elapsed_ns: u64,
    /// CPUs of the machine.
    pub cpus: u64,
    /// Times that programs were attached.
    pub windows: u64,
    /// Time that they were attached, ns.
    pub open_ns: u64,
    /// Whether it was ended because of the budget.
    pub is_stopped: bool,
    /// Whether everything was traced.
    pub is_exact: bool,
    /// What each trap into the kernel was taken for, CPU ns, measured at the start; 0: there are none.
    pub trap_ns: u64,
    /// Waits that went without user stack.
    pub left_out: LeftOut,
    /// How short those were, at most, ns.
    pub left_out_below_ns: u64,
    /// Advice how an exact collection costs less.
    pub remedy: &'static str,
}

impl Summary {
    /// What the collection cost, percent of the machine's CPU time.
    pub fn spent_percent(&self) -> f64 {
        100.0 * self.spent_ns as f64 / (self.elapsed_ns * self.cpus).max(1) as f64
    }

    /// Whether that is more than it was to cost.
    pub fn is_over(&self) -> bool {
        is_limit(self.percent) && self.spent_percent() > self.percent
    }

    /// True: it was to count everything, and ended before its time.
    pub fn is_cut_short(&self) -> bool {
        self.is_stopped && self.is_exact
    }

    /// For the closing lines and the comments of files.
    pub fn describe(&self) -> String {
        if self.is_cut_short() {
            return format!(
                "stopped after {}: tracing cost {:.2}% of {} CPUs, budget {}% (--max-overhead); {}",
                units::duration(self.elapsed_ns),
                self.spent_percent(),
                self.cpus,
                self.percent,
                self.remedy
            );
        }
        let spent = self.spent_percent();
        let verdict = match (is_limit(self.percent), self.is_over()) {
            (false, _) => "no limit".to_owned(),
            (_, true) => format!("OVER {}%", self.percent),
            (_, false) => format!("within {}%", self.percent),
        };
        let held = format!("{spent:.2}% of {} CPUs while tracing, {verdict}", self.cpus);
        let held = match self.trap_ns {
            0 => held,
            ns => format!("{held} (a trap taken for {})", units::duration(ns)),
        };
        let held = if self.is_stopped {
            format!(
                "{held}: stopped, because it cannot look more rarely; a larger --max-overhead lets it go on"
            )
        } else {
            held
        };
        let held = format!("{held}{}", self.describe_left_out());
        if self.is_exact {
            return format!("budget: {held}; everything was traced");
        }
        format!(
            "budget: {held}; traced {:.1}% of the time, in {} at random: all figures are estimates",
            100.0 * self.open_ns as f64 / self.elapsed_ns.max(1) as f64,
            units::counted(self.windows, "windows"),
        )
    }

    fn describe_left_out(&self) -> String {
        let LeftOut { waits, ns, .. } = self.left_out;
        if waits == 0 {
            return String::new();
        }
        format!(
            "; no user stacks of {} below {}, {} in all",
            units::counted(waits, "waits"),
            units::duration(self.left_out_below_ns),
            units::duration(ns),
        )
    }

    /// For JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "max_percent": self.percent,
            "spent_percent": self.spent_percent(),
            "spent_ns": self.spent_ns,
            "elapsed_ns": self.elapsed_ns,
            "windows": self.windows,
            "open_ns": self.open_ns,
            "exact": self.is_exact,
            "stopped": self.is_stopped,
            "trap_ns": self.trap_ns,
            "stacks_left_out": {
                "waits": self.left_out.waits,
                "ns": self.left_out.ns,
                "below_ns": self.left_out_below_ns,
            },
        })
    }
}
