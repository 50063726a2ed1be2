//! The closing line: events, losses, cost.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profile::units;
use profile::write::Meta;

use crate::budget::Summary;
use crate::cost::Cost;
use crate::losses::Losses;
use crate::run::Outcome;

/// What a run amounts to.
pub struct Closing<'a> {
    /// The tool.
    pub tool: &'a str,
    /// Length of the window.
    pub window: Duration,
    /// Events counted, with their name in the plural.
    pub events: (u64, &'a str),
    /// Distinct stacks, for stack tools.
    pub stacks: Option<usize>,
    /// How complete the user stacks are, in words.
    pub ends: Option<String>,
    /// What was lost.
    pub losses: &'a Losses,
    /// Time that losses are a share of, ns; 0: none.
    pub losses_of_ns: u64,
    /// What it cost.
    pub cost: &'a Cost,
}

impl Closing<'_> {
    /// Says it on stderr, unless there is nothing to say and quiet was asked for.
    pub fn print(&self, quiet: bool) {
        let is_stopped = self.cost.budget.is_some_and(|budget| budget.is_stopped);
        if quiet && self.losses.is_empty() && !is_stopped {
            return;
        }
        let stacks = self
            .stacks
            .map(|n| format!(", {}", units::counted(n as u64, "stacks")))
            .unwrap_or_default();
        crate::say!(
            "{}: {} of tracing, {}{stacks}; {}",
            self.tool,
            units::duration(u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX)),
            units::counted(self.events.0, self.events.1),
            self.losses.describe(self.losses_of_ns),
        );
        if let Some(ends) = &self.ends {
            crate::say!("{}: {ends}", self.tool);
        }
        crate::say!("{}: {}", self.tool, self.cost.describe());
        if let Some(budget) = &self.cost.budget {
            crate::say!("{}: {}", self.tool, budget.describe());
        }
    }

    /// The run's exit status, all else being well.
    pub fn outcome(&self, strict: bool) -> Outcome {
        if strict && !self.losses.is_empty() {
            Outcome::Lossy
        } else {
            Outcome::Done
        }
    }
}

/// What files of other formats say about a run: its losses, times as a share of `losses_of_ns`, its cost, and when it began.
pub fn meta(losses: &Losses, losses_of_ns: u64, cost: &Cost, window: Duration) -> Meta {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let began = now.unwrap_or_default().saturating_sub(window);
    let budget = cost.budget.iter().map(Summary::describe);
    let mut comments = vec![losses.describe(losses_of_ns), cost.describe()];
    comments.extend(budget);
    Meta {
        comments,
        time_ns: u64::try_from(began.as_nanos()).unwrap_or(0),
        ..Meta::default()
    }
}
