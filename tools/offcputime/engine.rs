//! offcputime at work: from loading its programs to the report.

use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use bpf::offcputime::{OffcputimeSkel, OffcputimeSkelBuilder};
use budget::Sampler;
use budget::cost::Cost;
use budget::meter::Meter;
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use loader::iterate::{self, Reseeding};
use loader::section;
use session::closing::Closing;
use session::progress::State;
use session::{Engine, Options, Setup, StackSetup};
use stacks::StackTable;
use symbols::Origin;

use crate::offcputime::args::Args;
use crate::offcputime::harvest;
use crate::offcputime::report;
use crate::offcputime::sampled::{GATED, Sampled, Sums};

/// The tool at work.
pub(crate) struct Offcputime<'a> {
    args: &'a Args,
    skel: OffcputimeSkel<'static>,
    stacks: StackTable,
    reseeding: Reseeding,
    meter: &'a Meter,
    /// From the opening on: when it looks, and what it has seen.
    sampler: Option<(Sampler<'a>, Sums)>,
    /// From the report on.
    closing: Option<Closing>,
}

impl<'a> Offcputime<'a> {
    pub(crate) fn load(args: &'a Args, setup: &Setup<'a>) -> Result<Self> {
        let walk_on_exit = setup.kernel.has_tracepoint("sched_exit_tp");
        let gated = args.budget.gated(&GATED);
        let builder = OffcputimeSkelBuilder::default();
        let skel = loader::load_gated(builder, setup.programs, gated, |open| {
            let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
            args.to_bpf(setup.targets, walk_on_exit, rodata);
            bpf::keep_members!(open, setup.programs.contains(&("task_freed", true)));
            Ok(())
        })?;
        let how = StackSetup {
            tables: bpf::unwind_maps!(skel),
            method: args.stacks.unwind,
            inline: !args.stacks.no_inline,
            origin: Origin::Tracepoint,
        };
        let stacks = setup.stacks(how, &skel.maps.stack_ring)?;
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.targets.fill(tgids, tids)?;
        iterate::run(skel.links.seed_members.as_ref())?;
        Ok(Self {
            args,
            skel,
            stacks,
            reseeding: Reseeding::default(),
            meter: setup.meter,
            sampler: None,
            closing: None,
        })
    }

    /// Takes in what is new.
    fn look_around(&mut self) -> Result<State> {
        self.stacks.absorb();
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        harvest::progress(&self.skel, &self.stacks)
    }
}

impl Engine for Offcputime<'_> {
    fn open(&mut self, length: Option<Duration>) -> Result<u64> {
        let who = (Args::NAME, self.args.common.verbose);
        let mut sums = Sums::default();
        let mut windows = Sampled {
            args: self.args,
            skel: &mut self.skel,
            stacks: &mut self.stacks,
            sums: &mut sums,
        };
        let budget = &self.args.budget;
        let sampler = budget.sampler(who, length, self.meter, &GATED, &mut windows)?;
        let start_ns = sampler.began_ns();
        self.sampler = Some((sampler, sums));
        Ok(start_ns)
    }

    fn describe(&self) -> String {
        self.args.window.describe()
    }

    fn fds(&self) -> Vec<RawFd> {
        // With a budget nothing wakes it but time: what is new is named when that is paid for.
        match self.args.budget.max_overhead {
            None => self.stacks.fds(),
            Some(_) => Vec::new(),
        }
    }

    fn step(&mut self) -> Result<State> {
        let (sampler, sums) = self.sampler.as_mut().context("it is not open")?;
        sampler.step(&mut Sampled {
            args: self.args,
            skel: &mut self.skel,
            stacks: &mut self.stacks,
            sums,
        })?;
        let (next, can_afford_more) = (sampler.next(), sampler.can_afford_more());
        let state = if can_afford_more {
            self.look_around()?
        } else {
            State::default()
        };
        Ok(State { next, ..state })
    }

    fn report(&mut self, _start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let (sampler, sums) = self.sampler.as_mut().context("it is not open")?;
        let mut windows = Sampled {
            args: self.args,
            skel: &mut self.skel,
            stacks: &mut self.stacks,
            sums,
        };
        *end_ns = sampler.end(&mut windows)?;
        let harvest = windows.harvest(sampler, *end_ns)?;
        let budget = sampler.summary(*end_ns);
        let cost = Cost::read(self.meter, self.skel.object(), budget);
        let closing = report::report(self.args, &harvest, &mut self.stacks, &cost)?;
        self.closing = Some(closing);
        Ok(())
    }

    fn closing(&mut self, _window: Edges) -> Result<Closing> {
        self.closing.take().context("no report was made")
    }
}
