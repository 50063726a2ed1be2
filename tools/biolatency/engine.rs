//! biolatency at work: from loading its programs to the last report.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::Result;
use bpf::biolatency::types::slow_io;
use bpf::biolatency::{BiolatencyLinks, BiolatencySkel, BiolatencySkelBuilder, OpenBiolatencyMaps};
use budget::Limit;
use budget::cost::Cost;
use budget::meter::Meter;
use hist::hdr::HdrLog;
use host::clock::{Edges, monotonic_ns};
use libbpf_rs::skel::Skel;
use loader::arrivals::Arrivals;
use loader::counters::Counters;
use loader::section;
use session::closing::Closing;
use session::progress::State;
use session::{Engine, Options, Setup};

use crate::biolatency::args::Args;
use crate::biolatency::disks;
use crate::biolatency::harvest::{Harvest, LOSSES};
use crate::biolatency::names::Names;
use crate::biolatency::report::Report;
use crate::biolatency::slow;

/// Advice for runs that cost too much.
const REMEDY: &str = "raise it, or ask for fewer histograms";

/// Room for operations, of which there are a dozen, and for the rows of their histograms.
const OPERATIONS: u32 = 128;
const OPERATIONS_ROWS: u32 = 16_384;

/// The tool at work.
pub(crate) struct Biolatency<'a> {
    pub(super) args: &'a Args,
    pub(super) skel: BiolatencySkel<'static>,
    pub(super) counters: Counters,
    names: Names,
    slow_ios: Arrivals<slow_io>,
    pub(super) harvest: Harvest,
    hdr: Option<HdrLog>,
    /// Opening of the window.
    start_ns: u64,
    /// Requests in the intervals so far.
    requests: u64,
    /// Requests at the last look.
    seen: u64,
    meter: &'a Meter,
    /// With `--max-overhead`.
    limit: Option<Limit<'a>>,
}

impl<'a> Biolatency<'a> {
    pub(crate) fn load(args: &'a Args, setup: &Setup<'a>) -> Result<Self> {
        Self::load_with(args, setup, |_| Ok(()))
    }

    /// The same with `rooms` of its own choice in the BPF side's maps.
    pub(super) fn load_with(
        args: &'a Args,
        setup: &Setup<'a>,
        rooms: impl FnOnce(&mut OpenBiolatencyMaps<'_>) -> Result<()>,
    ) -> Result<Self> {
        let (devs, cgroup_id) = (args.devs()?, args.cgroup_id()?);
        let hdr = args.histograms.hdr_log()?;
        let builder = BiolatencySkelBuilder::default();
        let skel = loader::load(builder, &setup.programs, &[], |open| {
            args.to_bpf(
                (setup.targets, cgroup_id),
                setup.kernel,
                section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
            );
            // All are preallocated; there are always groups, if only of operations.
            if !args.is_grouped() {
                let phases = u32::try_from(args.measured().len())?;
                open.maps.groups.set_max_entries(phases * OPERATIONS)?;
                open.maps
                    .buckets
                    .set_max_entries(phases * OPERATIONS_ROWS)?;
            }
            if !args.tracks() {
                // Only for what the kernel does not stamp.
                open.maps.started.set_max_entries(16_384)?;
            }
            if !args.phases {
                open.maps.submitted.set_max_entries(1)?;
            }
            rooms(&mut open.maps)
        })?;
        disks::fill(&devs, &skel.maps.wanted_devs)?;
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.targets.fill(tgids, tids)?;
        Ok(Self {
            args,
            names: Names::of(setup.kernel),
            slow_ios: Arrivals::open(&skel.maps.slow_ios)?,
            harvest: Harvest::default(),
            counters: Counters::new(skel.object(), &LOSSES, &[])?,
            skel,
            hdr,
            start_ns: 0,
            requests: 0,
            seen: 0,
            meter: setup.meter,
            limit: None,
        })
    }

    /// Cost of the run, which has got to `end_ns`.
    fn cost(&self, end_ns: u64) -> Cost {
        let budget = self.limit.as_ref().map(|limit| limit.summary(end_ns));
        Cost::read(self.meter, [self.skel.object()], budget)
    }

    fn print_slow_ios(&self) -> Result<()> {
        let out = &mut io::stdout().lock();
        for io in self.slow_ios.take() {
            let disk = self.harvest.name(&self.skel, io.disk, io.dev)?;
            slow::write(self.args, &self.names, &disk, &io, out)?;
        }
        Ok(())
    }
}

impl Engine for Biolatency<'_> {
    fn open(&mut self, _length: Option<Duration>) -> Result<u64> {
        self.start_ns = monotonic_ns();
        section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = self.start_ns;
        let who = (Args::NAME, REMEDY, self.args.common.verbose);
        let budget = &self.args.budget;
        self.limit = budget.limit(who, self.meter, self.skel.object())?;
        self.harvest = Harvest::begin(self.args);
        Ok(self.start_ns)
    }

    fn describe(&self) -> String {
        let measured = match self.args.measured() {
            [one] => one.title(),
            _ => "in each phase",
        };
        format!("block I/O (time {measured})")
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.slow_ios.fd()]
    }

    fn step(&mut self) -> Result<State> {
        let printed = self.print_slow_ios();
        let mut state = self
            .harvest
            .progress(&self.skel, &self.counters, self.requests)?;
        // An interval whose reader has gone has no report. This look has all that it was told.
        self.seen = state.events;
        printed?;
        if let Some(limit) = &mut self.limit {
            limit.look(self.skel.object());
            state.next = limit.next();
        }
        Ok(state)
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let limit = self.limit.as_mut();
        let is_used_up = limit.is_some_and(|limit| limit.end_interval(self.skel.object()));
        let interval = self
            .harvest
            .take(self.args, &mut self.skel, &self.counters, start_ns)?;
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

    fn closing(&mut self, window: Edges) -> Result<Closing> {
        Ok(Closing {
            check: None,
            events: (self.requests.max(self.seen), "requests"),
            losses: self.harvest.losses(&self.skel, &self.counters)?,
            cost: self.cost(window.end_ns),
            ..Closing::default()
        })
    }
}
