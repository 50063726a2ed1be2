//! lockstat at work: from loading its programs to the last report.

use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::Result;
use bpf::lockstat::{LockstatLinks, LockstatSkel};
use budget::cost::Cost;
use budget::meter::{Meter, count_skipped};
use budget::{Allowed, Limit, Next, ended_at};
use hist::harvest::wait_for_running_programs;
use host::clock::{Edges, monotonic_ns, nanoseconds};
use libbpf_rs::skel::Skel;
use loader::counters::Counters;
use loader::iterate::{self, Reseeding};
use loader::section;
use profile::ends::{self, Ends};
use profile::units;
use session::closing::Closing;
use session::progress::State;
use session::{Engine, Options, Setup, StackSetup, Tool};
use stacks::StackTable;
use symbols::Origin;

use crate::lockstat::args::Args;
use crate::lockstat::gils;
use crate::lockstat::harvest::{Ended, Harvest};
use crate::lockstat::losses::Ledger;
use crate::lockstat::names::Names;
use crate::lockstat::postgres::Servers;
use crate::lockstat::report::Interval;
use crate::lockstat::row::Side;
use crate::lockstat::setup::{self, FutexHooks};
use crate::lockstat::{losses, report, waits};

/// Advice for runs that cost too much.
const REMEDY: &str = "raise it, or narrow the run with -p";

/// The tool at work.
pub(crate) struct Lockstat<'a> {
    args: &'a Args,
    pub(super) skel: LockstatSkel<'static>,
    counters: Counters,
    pub(super) stacks: StackTable,
    pub(super) names: Names,
    pub(super) futexes: FutexHooks,
    reseeding: Reseeding,
    meter: &'a Meter,
    /// With `--max-overhead`.
    limit: Option<Limit<'a>>,
    end_ns: u64,
    deadline_ns: Option<u64>,
    waits: u64,
    waited_ns: u64,
    ends: Option<Ends>,
    /// Time that is over, and not taken yet: as a part of another tool.
    pub(super) ended: Option<Ended>,
}

impl Tool for Args {
    type Engine<'a> = Lockstat<'a>;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Lockstat<'a>> {
        let (mut skel, mut futexes) = setup::load(self, setup)?;
        let how = StackSetup {
            tables: bpf::unwind_maps!(skel),
            method: self.unwind,
            inline: !self.no_inline,
            native: self.native,
            origin: Origin::Tracepoint,
        };
        let mut stacks = setup.stacks(how, &skel.maps.stack_ring)?;
        if self.budget.is_limited() {
            stacks.finish_preparing();
        }
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.targets.fill(tgids, tids)?;
        let mut names = Names {
            classes: self.classes(),
            server_classes: self.server_classes(),
            rules: self.rules(),
            ..Names::default()
        };
        stacks.symbolizer().name_callers_of(names.rules.callees());
        gils::tell(&mut skel, stacks.take_python_locks())?;
        if self.traces(Side::User) {
            names.servers = Servers::find(&skel, &mut names.places)?;
            let asked = &self.targets.pids;
            names.javas.begin(asked, &mut skel, &mut names.places);
        }
        iterate::run(skel.links.seed_members.as_ref())?;
        iterate::run(skel.links.close_waits.as_ref())?;
        if self.traces(Side::User) {
            futexes.follow_compat(&mut skel)?;
        }
        Ok(Lockstat {
            args: self,
            counters: Counters::new(skel.object(), &losses::LOSSES, &[])?,
            skel,
            stacks,
            names,
            futexes,
            reseeding: Reseeding::default(),
            meter: setup.meter,
            limit: None,
            end_ns: 0,
            deadline_ns: None,
            waits: 0,
            waited_ns: 0,
            ends: None,
            ended: None,
        })
    }
}

impl Lockstat<'_> {
    /// Cost and losses since the start.
    pub(super) fn ledger(&self) -> Result<Ledger> {
        let budget = self.limit.as_ref();
        let budget = budget.map(|limit| limit.summary(self.end_ns));
        let cost = Cost::read(self.meter, [self.skel.object()], budget);
        let mut losses = losses::count(&self.counters, &self.stacks)?;
        count_skipped(self.skel.object(), &mut losses);
        Ok(Ledger {
            begun_before: losses::begun_before(&self.skel)?,
            losses,
            cost,
        })
    }

    /// Ends the interval that began at `start_ns`.
    pub(super) fn turn(&mut self, start_ns: u64, edge_ns: u64, is_last: bool) -> Result<Ended> {
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

    /// Detaches its programs, each of which the kernel waits for.
    pub(crate) fn detach(&mut self) {
        self.skel.links = LockstatLinks::default();
        self.futexes = FutexHooks::default();
    }

    /// Takes in tasks that have moved to a cgroup, and programs of 32 bits.
    pub(super) fn follow_targets(&mut self) -> Result<()> {
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        self.follow_compat_programs()
    }

    fn follow_compat_programs(&mut self) -> Result<()> {
        if !self.args.traces(Side::User) {
            return Ok(());
        }
        self.futexes.follow_compat(&mut self.skel)
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
            self.detach();
        }
        self.absorb()?;
        Harvest::take(&self.skel, &mut self.stacks, &mut self.names, ended)
    }

    /// Takes in what the BPF side has sent: stacks, and addresses of locks.
    pub(super) fn absorb(&mut self) -> Result<()> {
        self.stacks.absorb();
        let places = &mut self.names.places;
        let news = self.stacks.place_addresses(places);
        self.names.javas.follow(&news, &mut self.skel, places);
        gils::tell(&mut self.skel, self.stacks.take_python_locks())
    }
}

impl Engine for Lockstat<'_> {
    fn open(&mut self, length: Option<Duration>) -> Result<u64> {
        let start_ns = monotonic_ns();
        let end_ns = |length| start_ns.saturating_add(nanoseconds(length));
        if let Some(length) = length {
            self.close_at(end_ns(length))?;
        }
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.window_start_ns = start_ns;
        self.deadline_ns = self.args.window.duration.map(end_ns);
        let who = (Args::NAME, REMEDY, self.args.common.verbose);
        let budget = &self.args.budget;
        self.limit = budget.limit(who, self.meter, self.skel.object())?;
        Ok(start_ns)
    }

    fn fds(&self) -> Vec<RawFd> {
        // With a budget nothing wakes it but time: what is new is named when that is paid for.
        match self.limit {
            None => self.stacks.fds(),
            Some(_) => Vec::new(),
        }
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
            self.absorb()?;
        }
        self.follow_targets()?;
        Ok(State {
            next,
            events: losses::events(&self.skel)?,
            stacks: Some(self.stacks.len()),
            lost: losses::count(&self.counters, &self.stacks)?.total(),
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
        if self.args.traces(Side::User) {
            for tgid in &self.args.targets.pids {
                let (rules, stacks) = (&self.names.rules, &mut self.stacks);
                self.names.runtimes.look_at_files(*tgid, rules, stacks);
            }
        }
        let ledger = self.ledger()?;
        let interval = Interval {
            harvest,
            profile,
            ledger,
            async_runtimes: self.names.runtimes.to_json(),
        };
        report::report(self.args, &interval, &mut self.stacks)
    }

    fn closing(&mut self, _window: Edges) -> Result<Closing> {
        let ledger = self.ledger()?;
        let mut notes = Vec::new();
        if ledger.begun_before > 0 {
            let waits = units::counted(ledger.begun_before, "waits");
            notes.push(format!("begun before tracing, and left out: {waits}"));
        }
        notes.extend(self.names.runtimes.describe());
        notes.extend(self.names.javas.describe());
        let missed = units::counted(self.names.places.missed(), "locks");
        Ok(Closing {
            check: None,
            events: (self.waits, "waits"),
            of_targets: None,
            stacks: Some(self.stacks.len()),
            ends: self.ends.clone(),
            losses_of_ns: report::losses_of_ns(&ledger.losses, self.waited_ns),
            losses: ledger.losses,
            cost: ledger.cost,
            notes,
            details: vec![
                self.stacks.describe_unnamed(),
                format!("{missed} in memory that was gone when it was looked at"),
            ],
        })
    }
}
