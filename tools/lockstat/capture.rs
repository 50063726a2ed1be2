//! From the opening of the window to the last interval.

use std::os::fd::RawFd;

use anyhow::Result;
use bpf::lockstat::{LockstatLinks, LockstatSkel};
use libbpf_rs::skel::Skel;
use profile::ends;
use trace::budget::{Allowed, Limit, Next, ended_at};
use trace::command::Corked;
use trace::cost::Cost;
use trace::histogram::harvest::wait_for_running_programs;
use trace::intervals::Reports;
use trace::iterate::{self, Reseeding};
use trace::loader::section;
use trace::meter::Meter;
use trace::privileges;
use trace::progress::State;
use trace::stacks::StackTable;
use trace::symbolize::Origin;
use trace::targets::Settings;
use trace::unwind::Unwinder;
use trace::window::{monotonic_ns, nanoseconds};

use crate::args::Args;
use crate::harvest::{Ended, Harvest, Names};
use crate::losses::Ledger;
use crate::report::Interval;
use crate::row::Side;
use crate::setup::FutexReturns;
use crate::{REMEDY, losses, report, waits};

/// The tool at work.
pub(crate) struct Capture<'a> {
    args: &'a Args,
    pub(crate) skel: LockstatSkel<'static>,
    pub(crate) stacks: StackTable,
    pub(crate) names: Names,
    returns: FutexReturns,
    reseeding: Reseeding,
    meter: &'a Meter,
    /// With `--max-overhead`.
    limit: Option<Limit<'a>>,
    end_ns: u64,
    deadline_ns: Option<u64>,
    waits: u64,
    waited_ns: u64,
    ends: Option<String>,
}

impl<'a> Capture<'a> {
    pub(crate) fn open(
        args: &'a Args,
        (skel, returns): (LockstatSkel<'static>, FutexReturns),
        meter: &'a Meter,
        corked: Option<&Corked>,
    ) -> Result<Self> {
        let unwinder = Unwinder::new(args.unwind, bpf::unwind_maps!(skel), &args.targets.wanted())?;
        let mut stacks = StackTable::new(args.symbolizer()?, unwinder, Origin::Tracepoint);
        stacks.listen(&skel.maps.stack_ring)?;
        stacks.prepare(args.targets.processes_at_start(), corked.map(Corked::who));
        if args.budget.max_overhead.is_some() {
            stacks.finish_preparing();
        }
        Ok(Self {
            args,
            skel,
            stacks,
            names: Names {
                classes: args.classes(),
                ..Names::default()
            },
            returns,
            reseeding: Reseeding::default(),
            meter,
            limit: None,
            end_ns: 0,
            deadline_ns: None,
            waits: 0,
            waited_ns: 0,
            ends: None,
        })
    }

    /// Finds the targets, then lets time count.
    pub(crate) fn open_window(&mut self, targets: &Settings) -> Result<u64> {
        let maps = &self.skel.maps;
        targets.fill(&maps.target_tgids, &maps.target_tids)?;
        iterate::run(self.skel.links.seed_members.as_ref())?;
        iterate::run(self.skel.links.close_waits.as_ref())?;
        self.follow_compat_programs()?;
        privileges::keep_for_tracing("lockstat", &self.args.capabilities());
        let start_ns = self.let_time_count()?;
        let who = ("lockstat", REMEDY, self.args.common.verbose);
        let budget = &self.args.budget;
        self.limit = budget.limit(who, self.meter, self.skel.object())?;
        if !self.args.common.quiet {
            trace::say!("lockstat: tracing {}", self.args.window.describe());
        }
        let end_ns = |duration| start_ns.saturating_add(nanoseconds(duration));
        self.deadline_ns = self.args.window.duration.map(end_ns);
        Ok(start_ns)
    }

    /// What the run has cost, and what was not counted, since the start.
    pub(crate) fn ledger(&self) -> Result<Ledger> {
        let budget = self.limit.as_ref();
        let budget = budget.map(|limit| limit.summary(self.end_ns));
        let cost = Cost::read(self.meter, self.skel.object(), budget);
        Ok(Ledger {
            begun_before: losses::begun_before(&self.skel)?,
            losses: losses::count(&self.skel, &self.stacks, cost.recursions)?,
            cost,
        })
    }

    /// How complete user stacks were in the last report.
    pub(crate) fn ends(&self) -> Option<String> {
        self.ends.clone()
    }

    /// Waits reported so far.
    pub(crate) fn waits(&self) -> u64 {
        self.waits
    }

    /// Waited in all reports so far, as [`report::waited_ns`] counts.
    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    /// Ends the interval that began at `start_ns`.
    fn turn(&mut self, start_ns: u64, edge_ns: u64, is_last: bool) -> Result<Ended> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let ended = bss.epoch & 1;
        bss.open_epoch = ended;
        bss.edge_ns = edge_ns;
        if is_last {
            bss.window_end_ns = edge_ns;
        } else {
            bss.epoch = 1 - ended;
        }
        wait_for_running_programs();
        let open = iterate::run(self.skel.links.close_waits.as_ref())?;
        wait_for_running_programs();
        Ok(Ended {
            half: ended,
            open,
            window_ns: start_ns..edge_ns,
        })
    }

    /// From now on: for one interval if there is but one, else until told.
    fn let_time_count(&mut self) -> Result<u64> {
        let start_ns = monotonic_ns();
        if let Some(length) = self.args.only_interval() {
            self.close_at(start_ns.saturating_add(nanoseconds(length)))?;
        }
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.window_start_ns = start_ns;
        Ok(start_ns)
    }

    fn follow_compat_programs(&mut self) -> Result<()> {
        if !self.args.traces(Side::User) {
            return Ok(());
        }
        self.returns.follow_compat(&mut self.skel)
    }

    /// Leaves out stacks where the budget wants that. Returns what it allows, and when that is to be looked at again.
    fn heed_limit(&mut self) -> Result<(Allowed, Next)> {
        let Some(limit) = &mut self.limit else {
            return Ok((Allowed::Everything, Next::default()));
        };
        let allowed = limit.look(self.skel.object());
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.without_stacks = (allowed != Allowed::Everything).into();
        Ok((allowed, limit.next()))
    }

    /// Ends the interval that began at `start_ns`; what it found, and when it ended.
    fn take(&mut self, start_ns: u64) -> Result<Harvest> {
        let limit = self.limit.as_mut();
        let is_used_up = limit.is_some_and(|limit| limit.end_interval(self.skel.object()));
        let bss = section(self.skel.maps.bss_data.as_deref(), ".bss")?;
        let edge_ns = ended_at(bss.window_end_ns).max(start_ns);
        let is_last = is_used_up || self.deadline_ns.is_some_and(|deadline| edge_ns >= deadline);
        let ended = self.turn(start_ns, edge_ns, is_last)?;
        if is_used_up {
            // From now on nothing costs any more, though a command may go on.
            self.skel.links = LockstatLinks::default();
            self.returns = FutexReturns::default();
        }
        self.absorb();
        Harvest::take(&self.skel, &mut self.stacks, &mut self.names, ended)
    }

    /// Takes in what the BPF side has sent: stacks, and addresses of locks.
    fn absorb(&mut self) {
        self.stacks.absorb();
        self.stacks.place_addresses(&mut self.names.places);
    }
}

impl Reports for Capture<'_> {
    fn fds(&self) -> Vec<RawFd> {
        // With a budget nothing wakes it but time: what is new is named when that is paid for.
        match self.limit {
            None => self.stacks.fds(),
            Some(_) => Vec::new(),
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn close_at(&mut self, end_ns: u64) -> Result<()> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.open_epoch = bss.epoch & 1;
        bss.edge_ns = end_ns;
        bss.window_end_ns = end_ns;
        Ok(())
    }

    fn step(&mut self) -> Result<State> {
        let (allowed, next) = self.heed_limit()?;
        // New stacks can be named after the collection, too.
        if allowed == Allowed::Everything {
            self.absorb();
        }
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        self.follow_compat_programs()?;
        Ok(State {
            next,
            events: losses::events(&self.skel)?,
            stacks: Some(self.stacks.len()),
            lost: losses::count(&self.skel, &self.stacks, 0)?.total(),
            ..State::default()
        })
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let harvest = self.take(start_ns)?;
        *end_ns = harvest.window_ns.end;
        self.end_ns = *end_ns;
        self.waits += harvest.rows.iter().map(|row| row.contentions).sum::<u64>();
        self.waited_ns += report::waited_ns(&harvest);
        let named = self.args.needs_names();
        let releasers = self.args.profiles_releasers();
        let profile = waits::profile(&harvest, &mut self.stacks, named, releasers);
        self.ends = ends::describe(&profile);
        let ledger = self.ledger()?;
        let interval = Interval {
            harvest,
            profile,
            ledger,
        };
        report::report(self.args, &interval, &mut self.stacks)
    }
}
