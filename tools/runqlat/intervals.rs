//! What is done for every interval.

use std::io;
use std::os::fd::RawFd;

use anyhow::Result;
use bpf::runqlat::RunqlatSkel;
use bpf::runqlat::types::slow_wait;
use libbpf_rs::skel::Skel;
use trace::arrivals::Arrivals;
use trace::budget::Sampler;
use trace::cost::Cost;
use trace::histogram::hdr::HdrLog;
use trace::intervals::Reports;
use trace::iterate::Reseeding;
use trace::loader::section;
use trace::meter::Meter;
use trace::progress::State;

use crate::args::Args;
use crate::harvest::{self, Interval};
use crate::windows::{Sums, Windows};
use crate::{report, slow};

/// The tool at work.
pub(crate) struct Runqlat<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut RunqlatSkel<'static>,
    pub(crate) slow_waits: Arrivals<slow_wait>,
    pub(crate) hdr: Option<HdrLog>,
    /// When the window opened.
    pub(crate) start_ns: u64,
    pub(crate) reseeding: Reseeding,
    pub(crate) meter: &'a Meter,
    /// With `--max-overhead`.
    pub(crate) sampler: Option<(Sampler<'a>, Sums)>,
}

impl Reports for Runqlat<'_> {
    fn fds(&self) -> Vec<RawFd> {
        vec![self.slow_waits.fd()]
    }

    fn step(&mut self) -> Result<State> {
        slow::print(self.args, &self.slow_waits, &mut io::stdout().lock())?;
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        let mut state = harvest::progress(self.skel)?;
        if let Some((sampler, sums)) = &mut self.sampler {
            let (args, skel) = (self.args, &mut *self.skel);
            sampler.step(&mut Windows { args, skel, sums })?;
            state.next = sampler.next();
        }
        Ok(state)
    }

    fn close_at(&mut self, end_ns: u64) -> Result<()> {
        if self.sampler.is_none() {
            section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.window_end_ns = end_ns;
        }
        Ok(())
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let interval = match &mut self.sampler {
            None => Interval::take(self.args, self.skel, start_ns)?,
            Some((sampler, sums)) => {
                let (args, skel) = (self.args, &mut *self.skel);
                let end_ns = sampler.end(&mut Windows { args, skel, sums })?;
                std::mem::take(sums).interval(self.skel, start_ns, end_ns)?
            }
        };
        *end_ns = interval.end_ns;
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
}

impl Runqlat<'_> {
    /// Of the run, which has got to `end_ns`.
    pub(crate) fn cost(&self, end_ns: u64) -> Cost {
        let budget = self.sampler.as_ref();
        let budget = budget.map(|(sampler, _)| sampler.summary(end_ns));
        Cost::read(self.meter, self.skel.object(), budget)
    }
}
