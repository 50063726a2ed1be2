//! The closing lines: events, losses, cost.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use budget::Summary;
use budget::cost::Cost;
use host::scheduling::Starved;
use profile::ends::Ends;
use profile::losses::Losses;
use profile::units;
use profile::write::Meta;

use crate::options::Common;
use crate::outcome::Outcome;

/// A run's balance.
#[derive(Default)]
pub struct Closing {
    /// Events counted, with their name in the plural.
    pub events: (u64, &'static str),
    /// Those of the targets, where the events are everybody's.
    pub of_targets: Option<u64>,
    /// Distinct stacks, for stack tools.
    pub stacks: Option<usize>,
    /// Completeness of user stacks.
    pub ends: Option<Ends>,
    /// Events that were seen and not counted.
    pub losses: Losses,
    /// Time that losses are a share of, ns; 0: none.
    pub losses_of_ns: u64,
    /// Sum that has to come out, of tools that know one: `100.00% of 6 threads' 30.0 s accounted for`.
    pub check: Option<String>,
    /// Cost of the run.
    pub cost: Cost,
    /// More lines for people.
    pub notes: Vec<String>,
    /// Lines for `-v`.
    pub details: Vec<String>,
}

impl Closing {
    /// Says on stderr how `tool` fared in a window of that length.
    pub fn print(&self, tool: &str, window: Duration, common: &Common) {
        if !common.quiet || self.is_worth_saying() {
            profile::say!("{tool}: {}", self.balance(window));
            let budget = self.cost.budget.iter().map(Summary::describe);
            let starved = Some(&self.cost.starved).filter(|starved| starved.times > 0);
            for line in budget.chain(starved.map(Starved::describe)) {
                profile::say!("{tool}: {line}");
            }
        }
        let notes = self.notes.iter().filter(|_| !common.quiet).cloned();
        let details = self.details().into_iter().filter(|_| common.verbose);
        for line in notes.chain(details) {
            profile::say!("{tool}: {line}");
        }
    }

    /// Events, losses, the check, incomplete stacks and the cost in a line.
    fn balance(&self, window: Duration) -> String {
        // The kinds of missing frames, and their places, are a detail.
        let ends = self.ends.iter().filter(|ends| !ends.others.is_empty());
        let ends: String = ends.map(|ends| format!("; {}", ends.complete)).collect();
        let check = self.check.iter().map(|check| format!("; {check}"));
        let check: String = check.collect();
        format!(
            "{} of tracing, {}; {}{check}{ends}; {}",
            units::duration(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)),
            units::counted(self.events.0, self.events.1),
            self.losses.describe(self.losses_of_ns),
            self.cost.brief(),
        )
    }

    fn details(&self) -> Vec<String> {
        let stacks = self.stacks.map(|n| units::counted(n as u64, "stacks"));
        let lines = stacks
            .into_iter()
            .chain(self.ends.iter().map(Ends::to_string));
        let lines = lines.chain([self.cost.describe()]);
        lines.chain(self.details.iter().cloned()).collect()
    }

    /// Says that something was lost, or cost more than it was to.
    fn is_worth_saying(&self) -> bool {
        let budget = self.cost.budget.as_ref();
        self.is_lossy() || budget.is_some_and(|budget| budget.is_stopped || budget.is_over())
    }

    /// Something was lost, or may have been while the tool was not run, or after a budget had ended it.
    fn is_lossy(&self) -> bool {
        let budget = self.cost.budget.as_ref();
        let is_cut_short = budget.is_some_and(Summary::is_cut_short);
        is_cut_short || !self.losses.is_empty() || self.cost.starved.times > 0
    }

    /// The run's exit status, all else being well.
    pub fn outcome(&self, strict: bool) -> Outcome {
        if strict && self.is_lossy() {
            Outcome::Lossy
        } else {
            Outcome::Done
        }
    }
}

/// Events of tools that count each that they saw, for what it is: the line above one that says that all figures are estimates.
pub fn switches_and_wakeups(cost: &Cost) -> &'static str {
    match &cost.budget {
        Some(budget) if !budget.is_exact => "switches and wakeups seen",
        _ => "switches and wakeups",
    }
}

/// Remarks on a run for files of other formats: its losses, times as a share of `losses_of_ns`, its cost, and when it began.
pub fn meta(losses: &Losses, losses_of_ns: u64, cost: &Cost, window: Duration) -> Meta {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let began = now.unwrap_or_default().saturating_sub(window);
    let budget = cost.budget.iter().map(Summary::describe);
    let mut comments = vec![losses.describe(losses_of_ns), cost.describe()];
    comments.extend(budget);
    if cost.starved.times > 0 {
        comments.push(cost.starved.describe());
    }
    Meta {
        comments,
        time_ns: u64::try_from(began.as_nanos()).unwrap_or(0),
        ..Meta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_cost_are_one_line_and_their_details_others() {
        let mut losses = Losses::default();
        losses.time("rows_full", "waits: table full", 2, 10);
        let cost = Cost {
            runs: 10,
            bpf_ns: Some(2_000_000),
            own_cpu_ns: 3_000_000,
            wall_ns: 500_000_000,
            cpus: 2,
            peak_bytes: 1 << 50,
            map_bytes: 1 << 30,
            ..Cost::default()
        };
        let mut run = closing(losses, cost);
        (run.events, run.losses_of_ns) = ((1_233, "waits"), 1_000);
        run.stacks = Some(7);
        run.check = Some("100.00% of 3 threads' 6.00 s accounted for".into());
        run.ends = Some(Ends {
            complete: "user stacks complete for 98.96% of the time".into(),
            others: vec!["1.04% cut".into()],
        });
        let line = "2.00 s of tracing, 1,233 waits; LOST 2 waits: table full (1.00% of the time); \
                    100.00% of 3 threads' 6.00 s accounted for; \
                    user stacks complete for 98.96% of the time; cost 0.50% of 2 CPUs, 1073742848 MiB";
        assert_eq!(run.balance(Duration::from_secs(2)), line);
        let details = run.details();
        assert_eq!(details[0], "7 stacks");
        assert!(details[1].ends_with("; 1.04% cut"), "{details:?}");
        assert!(
            details[2].starts_with("cost 200000 ns/run, "),
            "{details:?}"
        );
        run.ends = Some(Ends {
            complete: "user stacks complete for 100% of the time".into(),
            others: Vec::new(),
        });
        assert!(!run.balance(Duration::ZERO).contains("stacks"));
    }

    #[test]
    fn time_without_a_cpu_is_said_and_strict() {
        let losses = Losses::default();
        let cost = |times| Cost {
            starved: Starved {
                times,
                ns: times * 12_300_000_000,
            },
            ..Cost::default()
        };
        for (times, is_said, outcome) in [(0, false, Outcome::Done), (1, true, Outcome::Lossy)] {
            let cost = cost(times);
            let comments = meta(&losses, 0, &cost, Duration::ZERO).comments;
            let run = closing(losses.clone(), cost);
            assert_eq!(
                (run.is_worth_saying(), run.outcome(true)),
                (is_said, outcome)
            );
            assert_eq!(
                comments.iter().any(|said| said.contains("for 12.3 s")),
                is_said
            );
        }
    }

    fn closing(losses: Losses, cost: Cost) -> Closing {
        Closing {
            check: None,
            events: (0, "events"),
            of_targets: None,
            stacks: None,
            ends: None,
            losses,
            losses_of_ns: 0,
            cost,
            notes: Vec::new(),
            details: Vec::new(),
        }
    }

    fn is_worth_saying(losses: &Losses, spent_ns: u64, is_stopped: bool) -> bool {
        let budget = Summary {
            percent: 2.0,
            spent_ns,
            elapsed_ns: 1_000,
            cpus: 1,
            is_stopped,
            ..Summary::default()
        };
        let cost = Cost {
            budget: Some(budget),
            ..Cost::default()
        };
        closing(losses.clone(), cost).is_worth_saying()
    }

    #[test]
    fn quiet_runs_say_what_went_wrong() {
        let (none, mut some) = (Losses::default(), Losses::default());
        some.count("test", "events lost", 1);
        assert!(!is_worth_saying(&none, 20, false));
        assert!(is_worth_saying(&none, 21, false), "over the budget");
        assert!(is_worth_saying(&none, 20, true), "stopped for it");
        assert!(is_worth_saying(&some, 20, false), "lost");
    }

    #[test]
    fn an_exact_run_that_its_budget_ended_is_said_and_strict() {
        for (is_exact, outcome) in [(true, Outcome::Lossy), (false, Outcome::Done)] {
            let summary = Summary {
                percent: 2.0,
                spent_ns: 800_000_000,
                elapsed_ns: 12_300_000_000,
                cpus: 2,
                is_stopped: true,
                is_exact,
                remedy: "raise it",
                ..Summary::default()
            };
            let cost = Cost {
                budget: Some(summary),
                ..Cost::default()
            };
            let losses = Losses::default();
            assert_eq!(closing(losses, cost).outcome(true), outcome);
            let said = "stopped after 12.3 s: tracing cost 3.25% of 2 CPUs, budget 2% (--max-overhead); raise it";
            assert_eq!(summary.describe() == said, is_exact, "{summary:?}");
        }
    }

    #[test]
    fn what_was_counted_in_windows_is_no_estimate() {
        let cost = |budget| Cost {
            budget,
            ..Cost::default()
        };
        let summary = |is_exact| Summary {
            is_exact,
            ..Summary::default()
        };
        let named = |budget| switches_and_wakeups(&cost(budget));
        assert_eq!(named(None), "switches and wakeups");
        assert_eq!(named(Some(summary(true))), "switches and wakeups");
        assert_eq!(
            units::counted(5, named(Some(summary(false)))),
            "5 switches and wakeups seen"
        );
    }
}
