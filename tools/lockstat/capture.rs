//! From the opening of the window to the last interval.

use std::os::fd::RawFd;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use libbpf_rs::skel::Skel;
use profile::ends;
use trace::command::Corked;
use trace::cost::Meter;
use trace::histogram::harvest::wait_for_running_programs;
use trace::intervals::Reports;
use trace::iterate::{self, Reseeding};
use trace::loader::section;
use trace::progress::State;
use trace::stacks::{Ring, StackTable};
use trace::symbolize::Origin;
use trace::targets::Settings;
use trace::unwind::Unwinder;
use trace::window::{monotonic_ns, nanoseconds};

use crate::args::Args;
use crate::harvest::{Ended, Harvest, Names};
use crate::losses::Ledger;
use crate::report::Interval;
use crate::setup::CompatReturns;
use crate::{losses, report, waits};

/// The tool at work.
pub(crate) struct Capture<'a> {
    args: &'a Args,
    pub(crate) skel: LockstatSkel<'static>,
    pub(crate) stacks: StackTable,
    ring: Ring,
    names: Names,
    compat_returns: CompatReturns,
    reseeding: Reseeding,
    meter: Meter,
    deadline_ns: Option<u64>,
    waits: u64,
    ends: Option<String>,
}

impl<'a> Capture<'a> {
    pub(crate) fn open(
        args: &'a Args,
        skel: LockstatSkel<'static>,
        meter: Meter,
        corked: Option<&Corked>,
    ) -> Result<Self> {
        let unwinder = Unwinder::new(args.unwind, bpf::unwind_maps!(skel), &args.targets.wanted())?;
        let mut stacks = StackTable::new(args.symbolizer()?, unwinder, Origin::Tracepoint);
        let ring = Ring::open(&skel.maps.stack_ring)?;
        stacks.prepare(args.targets.processes_at_start(), corked.map(Corked::who));
        Ok(Self {
            args,
            skel,
            stacks,
            ring,
            names: Names {
                classes: args.classes(),
                ..Names::default()
            },
            compat_returns: CompatReturns::default(),
            reseeding: Reseeding::default(),
            meter,
            deadline_ns: None,
            waits: 0,
            ends: None,
        })
    }

    /// Finds the targets, then lets time count.
    pub(crate) fn open_window(&mut self, targets: &Settings) -> Result<u64> {
        let maps = &self.skel.maps;
        targets.fill(&maps.target_tgids, &maps.target_tids)?;
        iterate::run(self.skel.links.seed_members.as_ref())?;
        iterate::run(self.skel.links.close_waits.as_ref())?;
        self.compat_returns.follow(&mut self.skel)?;
        let start_ns = monotonic_ns();
        section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = start_ns;
        if !self.args.common.quiet {
            eprintln!("lockstat: tracing {}", self.args.window.describe());
        }
        let end_ns = |duration| start_ns.saturating_add(nanoseconds(duration));
        self.deadline_ns = self.args.window.duration.map(end_ns);
        Ok(start_ns)
    }

    /// What the run has cost, and what was not counted, since the start.
    pub(crate) fn ledger(&self) -> Result<Ledger> {
        let cost = self.meter.read(self.skel.object());
        Ok(Ledger {
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

    /// Takes in what the BPF side has sent: stacks, and addresses of locks.
    fn absorb(&mut self) {
        self.stacks.absorb(&self.ring);
        self.names.places.learn(&self.stacks.take_addresses());
    }
}

impl Reports for Capture<'_> {
    fn fds(&self) -> Vec<RawFd> {
        vec![self.ring.fd(), self.stacks.fd()]
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn step(&mut self) -> Result<State> {
        self.absorb();
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        self.compat_returns.follow(&mut self.skel)?;
        Ok(State {
            events: losses::events(&self.skel)?,
            stacks: Some(self.stacks.len()),
            lost: losses::count(&self.skel, &self.stacks, 0)?.total(),
            ..State::default()
        })
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let edge_ns = monotonic_ns();
        let is_last = self.deadline_ns.is_some_and(|deadline| edge_ns >= deadline);
        let ended = self.turn(start_ns, edge_ns, is_last)?;
        *end_ns = edge_ns;
        self.absorb();
        let harvest = Harvest::take(&self.skel, &mut self.stacks, &mut self.names, ended)?;
        self.waits += harvest.rows.iter().map(|row| row.contentions).sum::<u64>();
        let named = self.args.needs_names();
        let profile = waits::profile(&harvest, &mut self.stacks, named);
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
