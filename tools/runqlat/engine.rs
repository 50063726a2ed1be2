//! runqlat at work: from loading its programs to the last report.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use bpf::runqlat::types::slow_wait;
use bpf::runqlat::{RunqlatSkel, RunqlatSkelBuilder};
use budget::Sampler;
use budget::cost::Cost;
use budget::meter::Meter;
use hist::hdr::HdrLog;
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use loader::arrivals::Arrivals;
use loader::counters::Counters;
use loader::iterate::{self, Reseeding};
use loader::section;
use session::closing::{self, Closing};
use session::progress::State;
use session::{Engine, Options, Setup};

use crate::runqlat::args::{Args, Group};
use crate::runqlat::harvest;
use crate::runqlat::windows::{GATED, Sums, Windows};
use crate::runqlat::{report, slow};

/// The tool at work.
pub(crate) struct Runqlat<'a> {
    args: &'a Args,
    skel: RunqlatSkel<'static>,
    counters: Counters,
    slow_waits: Arrivals<slow_wait>,
    hdr: Option<HdrLog>,
    /// Opening of the window.
    start_ns: u64,
    reseeding: Reseeding,
    meter: &'a Meter,
    /// From the opening on: when it looks, and what it has seen.
    sampler: Option<(Sampler<'a>, Sums)>,
}

impl<'a> Runqlat<'a> {
    pub(crate) fn load(args: &'a Args, setup: &Setup<'a>) -> Result<Self> {
        let hdr = args.histograms.hdr_log()?;
        let gated = args.budget.gated(&GATED);
        let builder = RunqlatSkelBuilder::default();
        let skel = loader::load_gated(builder, setup.programs, gated, |open| {
            args.to_bpf(
                setup.targets,
                section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
            );
            bpf::keep_members!(open, setup.programs.contains(&("task_freed", true)));
            if args.group() == Group::Machine {
                // Preallocated, and not used.
                open.maps.groups.set_max_entries(1)?;
                open.maps.buckets.set_max_entries(1)?;
            }
            Ok(())
        })?;
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.targets.fill(tgids, tids)?;
        iterate::run(skel.links.seed_members.as_ref())?;
        Ok(Self {
            args,
            counters: Counters::new(skel.object(), &harvest::LOSSES, &[])?,
            slow_waits: Arrivals::open(&skel.maps.slow_waits)?,
            skel,
            hdr,
            start_ns: 0,
            reseeding: Reseeding::default(),
            meter: setup.meter,
            sampler: None,
        })
    }

    /// Cost of the run, which has got to `end_ns`.
    fn cost(&self, end_ns: u64) -> Cost {
        let budget = self.sampler.as_ref();
        let budget = budget.and_then(|(sampler, _)| sampler.summary(end_ns));
        Cost::read(self.meter, self.skel.object(), budget)
    }
}

impl Engine for Runqlat<'_> {
    fn open(&mut self, length: Option<Duration>) -> Result<u64> {
        let who = (Args::NAME, self.args.common.verbose);
        let mut sums = Sums::default();
        let mut windows = Windows {
            args: self.args,
            skel: &mut self.skel,
            sums: &mut sums,
        };
        let budget = &self.args.budget;
        let sampler = budget.sampler(who, length, self.meter, &GATED, &mut windows)?;
        self.start_ns = sampler.began_ns();
        self.sampler = Some((sampler, sums));
        Ok(self.start_ns)
    }

    fn describe(&self) -> String {
        "run queue latency; Ctrl-C ends".into()
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.slow_waits.fd()]
    }

    fn step(&mut self) -> Result<State> {
        slow::print(self.args, &self.slow_waits, &mut io::stdout().lock())?;
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        let mut state = harvest::progress(&self.skel, &self.counters)?;
        if let Some((sampler, sums)) = &mut self.sampler {
            let (args, skel) = (self.args, &mut self.skel);
            sampler.step(&mut Windows { args, skel, sums })?;
            state.next = sampler.next();
        }
        Ok(state)
    }

    fn close_at(&mut self, end_ns: u64) -> Result<()> {
        if self.args.budget.max_overhead.is_none() {
            section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.window_end_ns = end_ns;
        }
        Ok(())
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let (sampler, sums) = self.sampler.as_mut().context("it is not open")?;
        let (args, skel) = (self.args, &mut self.skel);
        *end_ns = sampler.end(&mut Windows { args, skel, sums })?;
        let interval =
            std::mem::take(sums).interval((&self.skel, &self.counters), start_ns, *end_ns)?;
        let cost = self.cost(interval.end_ns);
        let stdout = &mut io::stdout().lock();
        // Those in the interval that came since the last step.
        slow::print(self.args, &self.slow_waits, stdout)?;
        report::write(
            self.args,
            (&interval, &cost),
            self.hdr.as_mut(),
            self.start_ns,
            stdout,
        )
    }

    fn closing(&mut self, window: Edges) -> Result<Closing> {
        let cost = self.cost(window.end_ns);
        Ok(Closing {
            events: (
                harvest::progress(&self.skel, &self.counters)?.events,
                closing::switches_and_wakeups(&cost),
            ),
            losses: harvest::losses(&self.skel, &self.counters)?,
            cost,
            ..Closing::default()
        })
    }
}
