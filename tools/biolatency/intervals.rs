//! What is done for every interval.

use std::io;
use std::os::fd::RawFd;

use anyhow::Result;
use bpf::biolatency::types::slow_io;
use bpf::biolatency::{BiolatencyLinks, BiolatencySkel};
use libbpf_rs::skel::Skel;
use trace::arrivals::Arrivals;
use trace::budget::Limit;
use trace::cost::Cost;
use trace::histogram::hdr::HdrLog;
use trace::intervals::Reports;
use trace::meter::Meter;
use trace::progress::State;

use crate::args::Args;
use crate::harvest::Harvest;
use crate::names::Names;
use crate::report::Report;
use crate::slow;

/// The tool at work.
pub(crate) struct Biolatency<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut BiolatencySkel<'static>,
    pub(crate) names: Names,
    pub(crate) slow_ios: Arrivals<slow_io>,
    pub(crate) harvest: Harvest,
    pub(crate) hdr: Option<HdrLog>,
    /// When the window opened.
    pub(crate) start_ns: u64,
    /// Requests in the intervals so far.
    pub(crate) requests: u64,
    pub(crate) meter: &'a Meter,
    /// With `--max-overhead`.
    pub(crate) limit: Option<Limit<'a>>,
}

impl Reports for Biolatency<'_> {
    fn fds(&self) -> Vec<RawFd> {
        vec![self.slow_ios.fd()]
    }

    fn step(&mut self) -> Result<State> {
        self.print_slow_ios()?;
        let mut state = self.harvest.progress(self.skel, self.requests)?;
        if let Some(limit) = &mut self.limit {
            limit.look(self.skel.object());
            state.next = limit.next();
        }
        Ok(state)
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let limit = self.limit.as_mut();
        let is_used_up = limit.is_some_and(|limit| limit.end_interval(self.skel.object()));
        let interval = self.harvest.take(self.args, self.skel, start_ns)?;
        if is_used_up {
            // From now on nothing costs any more, though a command may go on.
            self.skel.links = BiolatencyLinks::default();
        }
        *end_ns = interval.end_ns;
        // Those in the interval that came since the last step.
        self.print_slow_ios()?;
        self.requests += interval
            .disks
            .iter()
            .flat_map(|disk| &disk.classes)
            .map(|class| class.requests)
            .sum::<u64>();
        let report = Report {
            args: self.args,
            names: &self.names,
            interval: &interval,
            cost: self.cost(interval.end_ns),
        };
        if let Some(hdr) = &mut self.hdr {
            report.write_hdr(hdr, self.start_ns)?;
        }
        report.write(&mut io::stdout().lock())
    }
}

impl Biolatency<'_> {
    /// Of the run, which has got to `end_ns`.
    pub(crate) fn cost(&self, end_ns: u64) -> Cost {
        let budget = self.limit.as_ref().map(|limit| limit.summary(end_ns));
        Cost::read(self.meter, self.skel.object(), budget)
    }

    fn print_slow_ios(&self) -> Result<()> {
        let out = &mut io::stdout().lock();
        for io in self.slow_ios.take() {
            let disk = self.harvest.name(self.skel, io.disk, io.dev)?;
            slow::write(self.args, &self.names, &disk, &io, out)?;
        }
        Ok(())
    }
}
