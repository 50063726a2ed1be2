//! From the opening of the window to the last interval.

use std::os::fd::RawFd;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use trace::command::Corked;
use trace::histogram::harvest::wait_for_running_programs;
use trace::intervals::Reports;
use trace::iterate::{self, Reseeding};
use trace::loader::section;
use trace::losses::Losses;
use trace::progress::State;
use trace::stacks::{Ring, StackTable};
use trace::symbolize::Origin;
use trace::targets::Settings;
use trace::unwind::Unwinder;
use trace::window::monotonic_ns;

use crate::args::Args;
use crate::harvest::Harvest;
use crate::kernel::symbols::Symbols;
use crate::{losses, report};

/// The tool at work.
pub(crate) struct Capture<'a> {
    args: &'a Args,
    pub(crate) skel: LockstatSkel<'static>,
    pub(crate) stacks: StackTable,
    ring: Ring,
    symbols: Symbols,
    reseeding: Reseeding,
    reports: u64,
    waits: u64,
}

impl<'a> Capture<'a> {
    pub(crate) fn open(
        args: &'a Args,
        skel: LockstatSkel<'static>,
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
            symbols: Symbols::default(),
            reseeding: Reseeding::default(),
            reports: 0,
            waits: 0,
        })
    }

    /// Finds the targets, then lets time count.
    pub(crate) fn open_window(&mut self, targets: &Settings) -> Result<u64> {
        let maps = &self.skel.maps;
        targets.fill(&maps.target_tgids, &maps.target_tids)?;
        iterate::run(self.skel.links.seed_members.as_ref())?;
        iterate::run(self.skel.links.close_waits.as_ref())?;
        let start_ns = monotonic_ns();
        section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = start_ns;
        if !self.args.common.quiet {
            eprintln!("lockstat: tracing {}", self.args.window.describe());
        }
        Ok(start_ns)
    }

    /// What was not counted since the start.
    pub(crate) fn losses(&self) -> Result<Losses> {
        losses::count(&self.skel, &self.stacks)
    }

    /// Waits reported so far.
    pub(crate) fn waits(&self) -> u64 {
        self.waits
    }

    /// Whether the report that is due is the last one, as far as the clock decides.
    fn is_last(&self) -> bool {
        let count = self.args.every().count;
        count.is_none_or(|count| self.reports >= count)
    }

    /// Ends the interval at `edge_ns`; returns which half of the tables holds it.
    fn turn(&mut self, edge_ns: u64, is_last: bool) -> Result<u32> {
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
        iterate::run(self.skel.links.close_waits.as_ref())?;
        wait_for_running_programs();
        Ok(ended)
    }
}

impl Reports for Capture<'_> {
    fn fds(&self) -> Vec<RawFd> {
        vec![self.ring.fd(), self.stacks.fd()]
    }

    fn step(&mut self) -> Result<State> {
        self.stacks.absorb(&self.ring);
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        Ok(State {
            events: losses::events(&self.skel)?,
            stacks: Some(self.stacks.len()),
            lost: self.losses()?.total(),
            ..State::default()
        })
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        self.reports += 1;
        let is_last = self.is_last();
        let edge_ns = monotonic_ns();
        let half = self.turn(edge_ns, is_last)?;
        *end_ns = edge_ns;
        self.stacks.absorb(&self.ring);
        let harvest = Harvest::take(
            &self.skel,
            &mut self.stacks,
            &mut self.symbols,
            half,
            start_ns..edge_ns,
        )?;
        self.waits += harvest.rows.iter().map(|row| row.contentions).sum::<u64>();
        report::report(self.args, &harvest, &mut self.stacks)
    }
}
