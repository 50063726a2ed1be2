//! profile at work: from loading its programs to the report.

use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use bpf::profile::{ProfileSkel, ProfileSkelBuilder};
use budget::Sampler;
use budget::cost::Cost;
use budget::meter::Meter;
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use loader::section;
use session::closing::Closing;
use session::progress::State;
use session::{Engine, Options, Setup, StackSetup};
use stacks::StackTable;

use crate::profile::args::Args;
use crate::profile::attach::{self, Attached};
use crate::profile::harvest;
use crate::profile::moments::Moments;
use crate::profile::report;
use crate::profile::sampled::{Sampled, Sums, measure_trap};

/// The tool at work.
pub(crate) struct Profiling<'a> {
    args: &'a Args,
    skel: ProfileSkel<'static>,
    stacks: StackTable,
    moments: Moments,
    attached: Attached,
    meter: &'a Meter,
    /// From the opening on: when it looks, what it has seen, and the cost of a trap, ns.
    sampler: Option<(Sampler<'a>, Sums, u64)>,
    /// From the report on.
    closing: Option<Closing>,
}

impl<'a> Profiling<'a> {
    pub(crate) fn load(args: &'a Args, setup: &Setup<'a>) -> Result<Self> {
        let weight = attach::weight(args)?;
        let builder = ProfileSkelBuilder::default();
        let skel = loader::load(builder, setup.programs, |open| {
            let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
            args.to_bpf(setup.targets, weight, rodata);
            Ok(open.maps.moments.set_autocreate(args.keeps_moments())?)
        })?;
        let how = StackSetup {
            tables: bpf::unwind_maps!(skel),
            method: args.stacks.unwind,
            inline: !args.stacks.no_inline,
            origin: args.origin(),
        };
        let moments = Moments::open(args.keeps_moments(), &skel)?;
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.targets.fill(tgids, tids)?;
        Ok(Self {
            args,
            stacks: setup.stacks(how, &skel.maps.stack_ring)?,
            moments,
            attached: Attached::new(args, &skel)?,
            skel,
            meter: setup.meter,
            sampler: None,
            closing: None,
        })
    }
}

impl Engine for Profiling<'_> {
    fn open(&mut self, length: Option<Duration>) -> Result<u64> {
        let trap_ns = match self.args.budget.max_overhead {
            Some(_) => measure_trap(self.args, &mut self.skel, &mut self.attached)?,
            None => 0,
        };
        let who = (Args::NAME, self.args.common.verbose);
        let mut sums = Sums::default();
        let mut windows = Sampled {
            args: self.args,
            skel: &mut self.skel,
            moments: &mut self.moments,
            attached: &mut self.attached,
            trap_ns,
            sums: &mut sums,
        };
        let budget = &self.args.budget;
        let sampler = budget.sampler(who, length, self.meter, &[], &mut windows)?;
        let start_ns = sampler.began_ns();
        self.sampler = Some((sampler, sums, trap_ns));
        Ok(start_ns)
    }

    fn describe(&self) -> String {
        self.args.describe()
    }

    fn fds(&self) -> Vec<RawFd> {
        // With a budget nothing wakes it but time: what is new is named when that is paid for.
        match self.args.budget.max_overhead {
            None => self.stacks.fds(),
            Some(_) => Vec::new(),
        }
    }

    fn step(&mut self) -> Result<State> {
        let (sampler, sums, trap_ns) = self.sampler.as_mut().context("it is not open")?;
        sampler.step(&mut Sampled {
            args: self.args,
            skel: &mut self.skel,
            moments: &mut self.moments,
            attached: &mut self.attached,
            trap_ns: *trap_ns,
            sums,
        })?;
        self.attached.follow_cpus(&self.skel, false)?;
        let mut state = State::default();
        if sampler.can_afford_more() {
            self.stacks.absorb();
            state = harvest::progress(&self.skel, &self.stacks)?;
        }
        if self.args.budget.max_overhead.is_none() {
            // A window's own weigh more, and are taken in at its end.
            self.moments.absorb();
        }
        state.next = sampler.next();
        Ok(state)
    }

    fn report(&mut self, _start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let (sampler, sums, trap_ns) = self.sampler.as_mut().context("it is not open")?;
        let mut windows = Sampled {
            args: self.args,
            skel: &mut self.skel,
            moments: &mut self.moments,
            attached: &mut self.attached,
            trap_ns: *trap_ns,
            sums,
        };
        *end_ns = sampler.end(&mut windows)?;
        windows.attached.follow_cpus(windows.skel, true)?;
        self.stacks.absorb();
        let mut harvest = windows.harvest(sampler, *end_ns, &self.stacks)?;
        let budget = sampler.summary(*end_ns);
        self.moments.finish(&self.skel, &mut harvest.losses)?;
        let cost = Cost::read(self.meter, self.skel.object(), budget);
        let (moments, stacks) = (&self.moments, &mut self.stacks);
        let closing = report::report(self.args, &harvest, moments, stacks, &cost)?;
        self.closing = Some(closing);
        Ok(())
    }

    fn closing(&mut self, _window: Edges) -> Result<Closing> {
        self.closing.take().context("no report was made")
    }
}
