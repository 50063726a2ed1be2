//! Opens and closes the windows of a collection with a budget.

use anyhow::Result;
use host::clock::monotonic_ns;
use host::cpu_time::own_cpu_ns;

use crate::NO_BUDGET;
use crate::check_measuring;
use crate::controller::{Controller, Observed, Plan};
use crate::detail::Detail;
use crate::gate::Gate;
use crate::left_out::LeftOut;
use crate::looked::Looked;
use crate::meter::{Meter, Spent, cpus_online};
use crate::next::Next;
use crate::strata::Strata;
use crate::summary::Summary;
use crate::windowed::{Window, Windowed, open_edges, shut};

/// Time between two looks at the cost while everything is traced, ns.
const CHECK_NS: u64 = 25_000_000;
/// The same for the first look: on a busy machine this alone may cost what some tenths of a second may.
const FIRST_CHECK_NS: u64 = 2_000_000;
/// Time between two looks whether a tool is ready for a window, ns.
const UNREADY_NS: u64 = 5_000_000;

/// Share of the budget up to which more than windows is done; and the same while everything is traced, and costs what it costs.
const FOR_NAMES: f64 = 0.6;
const FOR_NAMES_OF_EVERYTHING: f64 = 0.9;

/// How long a collection may cost more than it should where nothing can be left out any more, ns.
const PATIENCE_NS: u64 = 10_000_000_000;
/// By how much, as a factor: what a collection costs is not known better.
const TOLERATED: f64 = 1.1;

#[derive(Clone, Copy)]
enum State {
    /// Since when, and the end that the BPF side knows of; `None`: looking all the time.
    Open(u64, Option<u64>),
    /// Until when.
    Shut(u64),
}

/// The windows of one collection.
pub struct Sampler<'a> {
    tool: &'static str,
    verbose: bool,
    /// `None`: there is no budget, and everything is traced.
    percent: Option<f64>,
    /// Length of a run without a budget, ns, if that is known.
    length_ns: Option<u64>,
    meter: &'a Meter,
    gate: Gate,
    controller: Controller,
    detail: Detail,
    left_out: LeftOut,
    plan: Plan,
    state: State,
    began_ns: u64,
    strata: Strata,
    /// What a trap costs, ns; 0 where there are none.
    trap_ns: u64,
    at_begin: Spent,
    /// At the latest look.
    spent: Spent,
    looked_ns: u64,
    check_ns: u64,
    /// CPU time of the present window's edges so far, ns.
    edges_ns: u64,
    windows: u64,
    looked: Looked,
    /// When the cheapest plan of all began, and what had been spent by then, ns.
    cheapest_since: Option<(u64, u64)>,
    must_stop: bool,
}

impl<'a> Sampler<'a> {
    /// Begins to look at what `windowed`, the tool called `tool`, traces with programs of which those that a budget detaches are
    /// not attached. Without a budget `percent` it looks all the time, for `length_ns` or until told, with programs
    /// that are attached already.
    ///
    /// # Errors
    ///
    /// When the programs cannot be measured or attached, and the tool's own.
    pub fn begin(
        (tool, verbose): (&'static str, bool),
        (percent, length_ns): (Option<f64>, Option<u64>),
        meter: &'a Meter,
        windowed: &mut impl Windowed,
    ) -> Result<Self> {
        if percent.is_some() {
            check_measuring(meter)?;
        }
        let now = monotonic_ns();
        let trap_ns = windowed.trap_ns();
        let spent = meter.spent(&windowed.programs(), trap_ns);
        let mut sampler = Self {
            tool,
            verbose,
            percent,
            length_ns,
            meter,
            gate: match percent {
                Some(_) => Gate::new(&windowed.programs()),
                None => Gate::default(),
            },
            controller: Controller::new(percent.unwrap_or(NO_BUDGET), cpus_online()),
            detail: Detail::default(),
            left_out: LeftOut::default(),
            plan: Plan::Everything,
            state: State::Shut(now),
            began_ns: now,
            strata: Strata::new(now),
            trap_ns,
            at_begin: spent,
            spent,
            looked_ns: now,
            check_ns: FIRST_CHECK_NS,
            edges_ns: 0,
            windows: 0,
            looked: Looked::default(),
            cheapest_since: None,
            must_stop: false,
        };
        sampler.open(windowed)?;
        sampler.began_ns = sampler.strata.start_ns();
        // What attaching and the first stock cost is not what follows costs.
        sampler.spent = meter.spent(&windowed.programs(), trap_ns);
        sampler.at_begin = sampler.spent;
        Ok(sampler)
    }

    /// When the collection began, ns.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// To be heeded after each [`Self::step`].
    pub fn next(&self) -> Next {
        Next {
            due_ns: self.percent.map(|_| self.due_ns()),
            must_stop: self.must_stop,
        }
    }

    fn due_ns(&self) -> u64 {
        match self.state {
            State::Open(_, Some(end)) => end,
            State::Open(_, None) => self.looked_ns + self.check_ns,
            State::Shut(until) => until,
        }
    }

    /// Whether other work, naming what is new, may be done now: it delays no window's end, and is paid for. What is not
    /// named now is named after the collection.
    pub fn can_afford_more(&self) -> bool {
        if self.percent.is_none() {
            return true;
        }
        if matches!(self.state, State::Open(_, Some(_))) {
            return false;
        }
        let since_ns = own_cpu_ns().saturating_sub(self.spent.own_ns);
        let spent_ns = self.spent.since(&self.at_begin).total() + since_ns;
        let elapsed_ns = monotonic_ns().saturating_sub(self.began_ns);
        let share = match self.state {
            State::Open(_, None) => FOR_NAMES_OF_EVERYTHING,
            _ => FOR_NAMES,
        };
        spent_ns as f64 <= share * self.controller.limit() * elapsed_ns as f64
    }

    /// Does what is due.
    ///
    /// # Errors
    ///
    /// As for [`Self::begin`].
    pub fn step(&mut self, windowed: &mut impl Windowed) -> Result<()> {
        if self.percent.is_none() || monotonic_ns() < self.due_ns() {
            return Ok(());
        }
        match self.state {
            State::Shut(_) if !windowed.is_ready() => {
                self.put_off();
                Ok(())
            }
            State::Shut(_) => self.open(windowed),
            State::Open(start_ns, Some(end_ns)) => self.close(start_ns, end_ns, windowed),
            State::Open(start_ns, None) => self.check(start_ns, windowed),
        }
    }

    /// Ends the collection, or an interval of it that is to be reported; returns when that was, ns.
    ///
    /// # Errors
    ///
    /// As for [`Self::begin`].
    pub fn end(&mut self, windowed: &mut impl Windowed) -> Result<u64> {
        if let State::Open(start_ns, end_ns) = self.state {
            let open_ns = monotonic_ns().saturating_sub(self.looked_ns);
            self.finish_window(start_ns, end_ns, windowed)?;
            // Cut short, a window says nothing of what the next ones will cost. Looking all the time is judged, or else intervals
            // that are shorter than the time between two checks never were.
            if self.percent.is_some() && end_ns.is_none() && open_ns >= FIRST_CHECK_NS {
                let seen = self.observe(open_ns, monotonic_ns(), windowed);
                if !self.controller.after_everything(&seen).is_affordable() {
                    self.plan = self.controller.windows(&seen);
                }
            }
            match self.percent {
                Some(_) => self.pick_next(),
                // It goes on being looked at.
                None => self.state = State::Open(self.strata.start_ns(), None),
            }
        }
        let now = monotonic_ns();
        self.observe(0, now, windowed);
        Ok(if self.is_exact() {
            // Not where the next stratum begins: what the window took to be taken in is behind it.
            self.looked.until_ns()
        } else {
            now
        })
    }

    /// What all totals are to be multiplied by, because no stratum covers the last moments of a collection that ended at
    /// `end_ns`.
    pub fn scale(&self, end_ns: u64) -> f64 {
        self.looked.scale(end_ns.saturating_sub(self.began_ns))
    }

    /// Share of a collection that ended at `end_ns` that was looked at.
    pub fn share(&self, end_ns: u64) -> f64 {
        self.looked.share(end_ns.saturating_sub(self.began_ns))
    }

    /// Whether nothing was left out.
    pub fn is_exact(&self) -> bool {
        self.looked.is_exact()
    }

    /// Effort of keeping to the budget, in a collection that ended at `end_ns`; `None`: there is none.
    pub fn summary(&self, end_ns: u64) -> Option<Summary> {
        Some(Summary {
            percent: self.percent?,
            spent_ns: self.spent.since(&self.at_begin).total(),
            elapsed_ns: end_ns.saturating_sub(self.began_ns),
            cpus: cpus_online(),
            windows: self.windows,
            open_ns: self.looked.open_ns(),
            is_stopped: self.must_stop,
            is_exact: self.is_exact(),
            trap_ns: self.trap_ns,
            left_out: self.left_out,
            left_out_below_ns: self.detail.most_ns(),
            remedy: "",
        })
    }

    fn open(&mut self, windowed: &mut impl Windowed) -> Result<()> {
        let before_ns = own_cpu_ns();
        self.gate.open()?;
        let length_ns = match self.plan {
            Plan::Everything => None,
            Plan::Windows { open_ns, .. } => Some(open_ns),
        };
        let told_ns = length_ns.or(self.length_ns);
        windowed.prepare(self.windows == 0)?;
        let start_ns = open_edges(windowed, told_ns)?;
        if self.windows == 0 {
            self.strata.begin(start_ns);
        }
        self.edges_ns = own_cpu_ns() - before_ns;
        self.looked_ns = start_ns;
        self.state = State::Open(start_ns, length_ns.map(|length| start_ns + length));
        Ok(())
    }

    fn check(&mut self, start_ns: u64, windowed: &mut impl Windowed) -> Result<()> {
        let now = monotonic_ns();
        let seen = self.observe(now - self.looked_ns, now, windowed);
        self.looked_ns = now;
        self.check_ns = CHECK_NS;
        let load = self.controller.after_everything(&seen);
        let was = self.detail;
        if self.detail.holds(load, now, windowed)? {
            if self.detail != was {
                self.say(&self.detail.describe());
            }
            return Ok(());
        }
        self.finish_window(start_ns, None, windowed)?;
        if let Some(events) = self.detail.restore(windowed)? {
            self.controller.expect(events.max(load.events));
        }
        self.plan = self.controller.windows(&seen);
        self.say(&self.plan.describe());
        self.pick_next();
        Ok(())
    }

    fn close(&mut self, start_ns: u64, end_ns: u64, windowed: &mut impl Windowed) -> Result<()> {
        let open_ns = self.finish_window(start_ns, Some(end_ns), windowed)?;
        self.plan_after(open_ns, windowed);
        self.pick_next();
        Ok(())
    }

    fn plan_after(&mut self, open_ns: u64, windowed: &impl Windowed) {
        let seen = self.observe(open_ns, monotonic_ns(), windowed);
        let was = self.plan;
        self.plan = self.controller.after_window(&seen);
        self.must_stop = self.is_hopeless(&seen);
        if was.is_everything() != self.plan.is_everything() {
            self.say(&self.plan.describe());
        }
    }

    /// Whether looking as rarely as possible has cost too much for a while.
    fn is_hopeless(&mut self, seen: &Observed) -> bool {
        if !Controller::is_cheapest(self.plan) {
            self.cheapest_since = None;
            return false;
        }
        let now = (seen.elapsed_ns, seen.spent_ns);
        let (since_ns, spent_ns) = *self.cheapest_since.get_or_insert(now);
        let elapsed_ns = seen.elapsed_ns - since_ns;
        let may_spend = TOLERATED * self.controller.limit() * elapsed_ns as f64;
        elapsed_ns >= PATIENCE_NS && (seen.spent_ns - spent_ns) as f64 > may_spend
    }

    /// `planned_end_ns`: as told when it was opened. Returns the window's length, ns.
    fn finish_window(
        &mut self,
        start_ns: u64,
        planned_end_ns: Option<u64>,
        windowed: &mut impl Windowed,
    ) -> Result<u64> {
        let before_ns = own_cpu_ns();
        let shut_ns = shut(windowed)?;
        self.gate.close();
        let by_clock_ns = self.length_ns.map(|length| self.began_ns + length);
        let end_ns = planned_end_ns
            .or(by_clock_ns)
            .unwrap_or(shut_ns)
            .min(shut_ns)
            .max(start_ns + 1);
        let stratum_ns = self.strata.finish(start_ns, end_ns, planned_end_ns);
        let window = Window {
            start_ns,
            end_ns,
            stratum_ns,
        };
        windowed.take(&window)?;
        self.left_out = windowed.left_out()?;
        self.edges_ns += own_cpu_ns() - before_ns;
        self.windows += 1;
        self.looked.add(&window);
        Ok(window.open_ns())
    }

    /// Where in the next stratum its window opens.
    fn pick_next(&mut self) {
        self.state = State::Shut(self.strata.next(self.plan, monotonic_ns()));
    }

    /// The tool is not ready for the window that is due.
    fn put_off(&mut self) {
        self.pick_next();
        if let State::Shut(until) = &mut self.state {
            *until = (*until).max(monotonic_ns() + UNREADY_NS);
        }
    }

    fn observe(&mut self, open_ns: u64, now: u64, windowed: &impl Windowed) -> Observed {
        let spent = self.meter.spent(&windowed.programs(), self.trap_ns);
        let since = spent.since(&self.spent);
        self.spent = spent;
        Observed {
            open_ns,
            events_ns: since.events_ns,
            edges_ns: self.edges_ns,
            own_ns: since.own_ns,
            elapsed_ns: now.saturating_sub(self.began_ns),
            spent_ns: spent.since(&self.at_begin).total(),
        }
    }

    fn say(&self, what: &str) {
        if self.verbose {
            profile::say!("{}: budget: {what}", self.tool);
        }
    }
}

#[cfg(test)]
mod tests;
