//! runqlat at work: from loading its programs to the last report.

use std::io;
use std::os::fd::RawFd;

use anyhow::Result;
use bpf::runqlat::types::slow_wait;
use bpf::runqlat::{RunqlatSkel, RunqlatSkelBuilder};
use budget::cost::Cost;
use budget::meter::{Meter, losses};
use budget::{Programs, Sampler, Told, Window, Windowed, add_shared, ended_at, shut_edges};
use hist::harvest::wait_for_running_programs;
use hist::hdr::HdrLog;
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use loader::arrivals::Arrivals;
use loader::counters::Counters;
use loader::iterate::{self, Reseeding};
use loader::{maps, section};
use session::Setup;
use session::closing::{self, Closing};
use session::progress::State;
use session::sampling::{Collector, Sampled};

use crate::runqlat::args::{Args, Group};
use crate::runqlat::harvest::{self, Interval};
use crate::runqlat::quota::Quotas;
use crate::runqlat::windows::{GATED, Sums};
use crate::runqlat::{report, slow};

/// A window that is worth a walk over all tasks at its end. Short looks of a budget make estimates, and such walks would leave less to look.
const LONG_NS: u64 = 1_000_000_000;

/// The tool at work.
pub struct Runqlat<'a> {
    args: &'a Args,
    skel: RunqlatSkel<'static>,
    counters: Counters,
    slow_waits: Arrivals<slow_wait>,
    hdr: Option<HdrLog>,
    reseeding: Reseeding,
    meter: &'a Meter,
    /// What it has seen in the interval.
    sums: Sums,
    /// At the interval's beginning.
    quotas: Quotas,
    /// Waits of the targets, of all intervals.
    waits: u64,
}

impl Sampled for Args {
    type Collector<'a> = Runqlat<'a>;

    fn collector<'a>(&'a self, setup: &Setup<'a>) -> Result<Runqlat<'a>> {
        let hdr = self.histograms.hdr_log()?;
        let gated = self.budget.gated(&GATED);
        let builder = RunqlatSkelBuilder::default();
        let skel = loader::load(builder, &setup.programs, gated, |open| {
            self.to_bpf(
                setup.targets,
                section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
            );
            bpf::keep_members!(open, setup.programs.contains(&("task_freed", true)));
            if self.group() == Group::Machine {
                // Preallocated, and not used.
                open.maps.groups.set_max_entries(1)?;
                open.maps.buckets.set_max_entries(1)?;
            }
            Ok(())
        })?;
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.seed(tgids, tids, skel.links.seed_members.as_ref())?;
        Ok(Runqlat {
            args: self,
            counters: Counters::new(skel.object(), &harvest::LOSSES, &[])?,
            slow_waits: Arrivals::open(&skel.maps.slow_waits)?,
            skel,
            hdr,
            reseeding: Reseeding::default(),
            meter: setup.meter,
            sums: Sums::default(),
            quotas: Quotas::default(),
            waits: 0,
        })
    }
}

impl Runqlat<'_> {
    /// Takes stock, so that waits that are under way count from the window's opening on.
    fn take_stock(&mut self) -> Result<()> {
        // Slices that ran before the window have nothing to do with its waits.
        maps::clear_per_cpu(&self.skel.maps.history, 0)?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.in_windows = 1;
        // Learnt anew in each window: clocks drift apart.
        if bss.clock_offset != 0 {
            bss.last_clock_offset = bss.clock_offset;
        }
        (bss.clock_offset, bss.clock_samples) = (0, 0);
        iterate::run(self.skel.links.open_waits.as_ref())?;
        Ok(())
    }

    /// The interval that ends now.
    ///
    /// # Errors
    ///
    /// The BPF side's tables cannot be read.
    pub fn harvest(&mut self, window: Edges) -> Result<Interval> {
        let sums = std::mem::take(&mut self.sums);
        let mut interval = sums.interval((&self.skel, &self.counters), window)?;
        (interval.quotas, interval.has_nameless_quota) = self.quotas.used_up(&self.skel)?;
        // Between windows nobody sees them run.
        if !self.args.budget.is_limited() {
            interval.ready = harvest::ready(&self.skel)?;
        }
        Ok(interval)
    }

    /// A window has ended: waits count as lost whose end nobody saw.
    fn ask_sleepers(&self) -> Result<()> {
        iterate::run(self.skel.links.ask_sleepers.as_ref())?;
        Ok(())
    }

    /// Cost of the run, which has got to `end_ns`.
    fn cost(&self, sampler: &Sampler<'_>, end_ns: u64) -> Cost {
        Cost::read(self.meter, [self.skel.object()], sampler.summary(end_ns))
    }
}

impl Windowed for Runqlat<'_> {
    fn programs(&self) -> Vec<Programs<'_>> {
        vec![Programs {
            object: self.skel.object(),
            gated: &GATED,
        }]
    }

    fn settles(&self) -> bool {
        // Attaching had threads wait that otherwise do not.
        self.args.budget.is_limited()
    }

    fn prepare(&mut self, first: bool) -> Result<()> {
        if first {
            self.quotas.look(&self.skel)?;
        }
        if self.args.budget.is_limited() {
            self.take_stock()?;
        }
        Ok(())
    }

    fn edges(&mut self) -> Result<Vec<Told<'_>>> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        Ok(vec![Told {
            start_ns: &mut bss.window_start_ns,
            end_ns: &mut bss.window_end_ns,
        }])
    }

    fn shut(&mut self) -> Result<u64> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        if self.args.budget.is_limited() {
            let end_ns = shut_edges(&mut bss.window_end_ns);
            if end_ns.saturating_sub(bss.window_start_ns) >= LONG_NS {
                self.ask_sleepers()?;
            }
            return Ok(end_ns);
        }
        // The other half is written from now on.
        bss.epoch = 1 - bss.epoch;
        let end_ns = ended_at(bss.window_end_ns);
        wait_for_running_programs();
        self.ask_sleepers()?;
        Ok(end_ns)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let epoch = section(self.skel.maps.bss_data.as_deref(), ".bss")?.epoch;
        let ended = if self.args.budget.is_limited() {
            epoch
        } else {
            1 - epoch
        };
        let waits = harvest::waits(self.args, &self.skel, ended)?;
        self.waits += waits.iter().map(|of| of.histogram.count()).sum::<u64>();
        let culprits = harvest::culprits(&self.skel, ended)?;
        let (homeless, nameless) = self.sums.add(&waits, culprits, window);
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        add_shared(&mut bss.groups_full, homeless);
        add_shared(&mut bss.culprits_full, nameless);
        Ok(())
    }
}

impl Collector for Runqlat<'_> {
    fn describe(&self) -> String {
        "run queue latency".into()
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.slow_waits.fd()]
    }

    fn look_around(&mut self, _can_afford_more: bool) -> Result<State> {
        slow::print(self.args, &self.slow_waits, &mut io::stdout().lock())?;
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        if self.reseeding.follow(moves, seed)? {
            iterate::run(self.skel.links.read_quotas.as_ref())?;
        }
        harvest::progress(&self.skel, &self.counters)
    }

    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()> {
        let interval = self.harvest(window)?;
        let cost = self.cost(sampler, window.end_ns);
        let stdout = &mut io::stdout().lock();
        // Those in the interval that came since the last step.
        slow::print(self.args, &self.slow_waits, stdout)?;
        report::write(
            self.args,
            (&interval, &cost),
            self.hdr.as_mut(),
            sampler.began_ns(),
            stdout,
        )
    }

    fn closing(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<Closing> {
        let cost = self.cost(sampler, window.end_ns);
        Ok(Closing {
            check: None,
            events: (
                harvest::progress(&self.skel, &self.counters)?.events,
                closing::switches_and_wakeups(&cost),
            ),
            of_targets: Some(self.waits),
            losses: losses(self.skel.object(), &self.counters)?,
            cost,
            ..Closing::default()
        })
    }
}
