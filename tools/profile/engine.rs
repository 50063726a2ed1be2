//! profile at work: from loading its programs to the report.

use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use bpf::profile::{ProfileSkel, ProfileSkelBuilder};
use libbpf_rs::skel::Skel;
use trace::budget::{Sampler, open_edges, shut_edges};
use trace::closing::Closing;
use trace::cost::Cost;
use trace::loader::{self, section};
use trace::meter::Meter;
use trace::progress::State;
use trace::session::{Engine, Options, Setup, StackSetup};
use trace::stacks::StackTable;
use trace::window::{Edges, nanoseconds};

use crate::args::Args;
use crate::attach::{self, Attached};
use crate::harvest::{self, Harvest, Span};
use crate::moments::Moments;
use crate::sampled::{Sampled, Sums, measure_trap};
use crate::{busy, report};

/// The tool at work.
pub(crate) struct Profiling<'a> {
    args: &'a Args,
    skel: ProfileSkel<'static>,
    stacks: StackTable,
    moments: Moments,
    attached: Attached,
    meter: &'a Meter,
    /// Idle time of all CPUs when the window opened, ns.
    idle_before_ns: u64,
    /// With `--max-overhead`: its windows, and what a trap costs, ns.
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
            idle_before_ns: 0,
            sampler: None,
            closing: None,
        })
    }

    fn begin_sampling(&mut self, percent: f64) -> Result<u64> {
        let trap_ns = measure_trap(self.args, &mut self.skel, &mut self.attached)?;
        let mut sums = Sums::default();
        let who = (Args::NAME, self.args.common.verbose);
        let mut windows = Sampled {
            args: self.args,
            skel: &mut self.skel,
            moments: &mut self.moments,
            attached: &mut self.attached,
            trap_ns,
            sums: &mut sums,
        };
        let sampler = Sampler::begin(who, percent, self.meter, &[], &mut windows)?;
        let start_ns = sampler.began_ns();
        self.sampler = Some((sampler, sums, trap_ns));
        Ok(start_ns)
    }

    /// Ends what began at `start_ns` and was looked at all the time.
    fn harvest(&mut self, start_ns: u64) -> Result<Harvest> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let looked_ns = shut_edges(&mut bss.window_end_ns);
        let end_ns = bss.window_end_ns;
        let idle_ns = busy::idle_ns(self.args.cpu).saturating_sub(self.idle_before_ns);
        self.stacks.absorb();
        self.attached.follow_cpus(&self.skel, true)?;
        let span = Span {
            window: Edges { start_ns, end_ns },
            idle_ns,
            late_ns: looked_ns - end_ns,
            late_cpus: self.attached.late_cpus(),
        };
        Harvest::gather(self.args, &self.skel, &self.stacks, &span)
    }
}

impl Engine for Profiling<'_> {
    fn open(&mut self, length: Option<Duration>) -> Result<u64> {
        if let Some(percent) = self.args.budget.max_overhead {
            return self.begin_sampling(percent);
        }
        self.idle_before_ns = busy::idle_ns(self.args.cpu);
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        Ok(open_edges(start_ns, end_ns, length.map(nanoseconds)))
    }

    fn describe(&self) -> String {
        self.args.describe()
    }

    fn fds(&self) -> Vec<RawFd> {
        // With a budget nothing wakes it but time: what is new is named when that is paid for.
        match self.sampler {
            None => self.stacks.fds(),
            Some(_) => Vec::new(),
        }
    }

    fn step(&mut self) -> Result<State> {
        let Some((sampler, sums, trap_ns)) = &mut self.sampler else {
            self.attached.follow_cpus(&self.skel, false)?;
            self.stacks.absorb();
            self.moments.absorb();
            return harvest::progress(&self.skel, &self.stacks);
        };
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
        state.next = sampler.next();
        Ok(state)
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let mut harvest = match &mut self.sampler {
            None => self.harvest(start_ns)?,
            Some((sampler, sums, trap_ns)) => {
                let mut windows = Sampled {
                    args: self.args,
                    skel: &mut self.skel,
                    moments: &mut self.moments,
                    attached: &mut self.attached,
                    trap_ns: *trap_ns,
                    sums,
                };
                let end_ns = sampler.end(&mut windows)?;
                windows.attached.follow_cpus(windows.skel, true)?;
                self.stacks.absorb();
                windows.harvest(sampler, end_ns, &self.stacks)?
            }
        };
        *end_ns = harvest.window.end_ns;
        self.moments.finish(&self.skel, &mut harvest.losses)?;
        let sampler = self.sampler.as_ref();
        let budget = sampler.map(|(sampler, ..)| sampler.summary(*end_ns));
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
