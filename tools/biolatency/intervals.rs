//! What is done for every interval.

use std::io;
use std::os::fd::RawFd;

use anyhow::Result;
use bpf::biolatency::BiolatencySkel;
use bpf::biolatency::types::slow_io;
use trace::arrivals::Arrivals;
use trace::histogram::hdr::HdrLog;
use trace::intervals::Reports;
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
}

impl Reports for Biolatency<'_> {
    fn fds(&self) -> Vec<RawFd> {
        vec![self.slow_ios.fd()]
    }

    fn step(&mut self) -> Result<State> {
        self.print_slow_ios()?;
        self.harvest.progress(self.skel, self.requests)
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let interval = self.harvest.take(self.args, self.skel, start_ns)?;
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
        };
        if let Some(hdr) = &mut self.hdr {
            report.write_hdr(hdr, self.start_ns)?;
        }
        report.write(&mut io::stdout().lock())
    }
}

impl Biolatency<'_> {
    fn print_slow_ios(&self) -> Result<()> {
        let out = &mut io::stdout().lock();
        for io in self.slow_ios.take() {
            let disk = self.harvest.name(self.skel, io.disk, io.dev)?;
            slow::write(self.args, &self.names, &disk, &io, out)?;
        }
        Ok(())
    }
}
