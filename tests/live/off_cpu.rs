//! A thread's times off the CPU: offcputime's beside those of the log of the kernel's events.

use oracle::offcpu::{absences, unwoken};
use oracle::{Bracket, Logs, Pair, Span};

use crate::kernel::has_tracepoint;
use crate::prelude::*;

/// The tool under test hears threads say that they go on: see [`Times`].
pub(crate) fn sees_hidden() -> bool {
    const HOOK: &str = "sched_exit_tp";
    let hidden = std::env::var("USEKIT_HIDE_HOOKS").unwrap_or_default();
    has_tracepoint(HOOK) && !hidden.split(',').any(|hook| hook == HOOK)
}

/// Phases of all threads, all the time that they lived.
pub(crate) fn phases_ns(report: &Value) -> u64 {
    let phases = ["oncpu_ns", "runqueue_ns", "blocked_ns"];
    let phases = phases.map(|phase| number(&report["accounting"], phase));
    phases.iter().sum()
}

/// Of one thread, which sleeps at both edges of the window.
pub(crate) struct Times<'a> {
    report: &'a Value,
    tid: u64,
    absences: Vec<Span>,
    unwoken: u64,
    /// A thread's own word that it goes on shows ends that no switch does (`sched_exit_tp`).
    sees_hidden: bool,
}

impl<'a> Times<'a> {
    pub(crate) fn of(found: &'a Sandwich, tid: u64, sees_hidden: bool) -> Self {
        Self::in_report(&found.report, &found.logs, tid, sees_hidden)
    }

    pub(crate) fn in_report(report: &'a Value, logs: &Logs, tid: u64, sees_hidden: bool) -> Self {
        let edges = number(report, "start_ns")..number(report, "end_ns");
        let thread = u32::try_from(tid).expect("a thread ID");
        let absences = absences(logs, thread, &edges).expect("logs that agree");
        let unwoken = unwoken(logs, thread, &edges).expect("logs that agree");
        Self {
            report,
            tid,
            absences,
            unwoken,
            sees_hidden,
        }
    }

    /// Each of them, as both logs have it.
    pub(crate) fn pairs(&self) -> Vec<Pair> {
        self.absences.iter().map(|absence| absence.pair).collect()
    }

    /// Of the times that the tool can know and `wanted` holds for.
    pub(crate) fn bracket(&self, wanted: impl Fn(&Span) -> bool) -> Bracket {
        let known = |absence: &&Span| self.sees_hidden || !absence.is_hidden;
        let wanted = self.absences.iter().filter(known).filter(|one| wanted(one));
        wanted.map(|absence| absence.pair).collect()
    }

    /// How often the thread left a CPU so, which switches always show.
    pub(crate) fn left(&self, wanted: impl Fn(&Span) -> bool) -> u64 {
        let of_window = number(self.report, "start_ns");
        let began = |absence: &&Span| absence.pair.early.begin_ns > of_window && wanted(absence);
        self.absences.iter().filter(began).count() as u64
    }

    /// Number of times whose end the tool cannot know.
    pub(crate) fn lost(&self) -> u64 {
        let lost = |absence: &&Span| !self.sees_hidden && absence.is_hidden;
        self.absences.iter().filter(lost).count() as u64
    }

    /// Number of events that the tool cannot know: the ends of times, and wakeups.
    pub(crate) fn unseen(&self) -> u64 {
        self.lost() + self.unwoken
    }

    /// The tool has as many as that in the stacks that `wanted` holds for, and their time lies inside.
    pub(crate) fn assert_inside(&self, truth: &Bracket, wanted: impl Fn(&Value) -> bool) {
        let own = || stacks(self.report, self.tid).filter(|stack| wanted(stack));
        let found = (sum(own(), "count"), own().map(weight).sum());
        let what = format!("thread {}", self.tid);
        let context = format!("{}{}", self.report["losses"], self.all());
        assert_bracketed(what, found, truth, context);
    }

    /// Every row and every absence, for whoever looks for the difference.
    fn all(&self) -> String {
        let rows = stacks(self.report, self.tid).map(|stack| {
            let leaf = list(stack, "kernel").last();
            let (reason, count) = (&stack["reason"], &stack["count"]);
            format!("\n{reason} {count} {} {leaf:?}", weight(stack))
        });
        let absences = self.absences.iter().map(|absence| format!("\n{absence:?}"));
        rows.chain(absences).collect()
    }
}

/// Each of a workload's threads is off its CPU as often as in the log of the kernel's events, for a time inside its bracket.
pub(crate) fn assert_all_off(start: fn() -> Workload) {
    let _machine = Machine::alone();
    let found = sandwiched("offcputime", "-m 0", start());
    for thread in &found.results {
        let times = Times::of(&found, number(thread, "tid"), sees_hidden());
        times.assert_inside(&times.bracket(|_| true), |_| true);
    }
    assert_eq!(found.report["losses"]["unreported"], 0);
}

pub(crate) fn stacks(report: &Value, tid: u64) -> impl Iterator<Item = &Value> {
    let all = list(report, "stacks").iter();
    all.filter(move |stack| stack["tid"] == tid)
}
