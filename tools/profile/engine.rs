//! profile at work: from loading its programs to the report.

use std::collections::HashMap;
use std::os::fd::RawFd;

use anyhow::{Context, Result};
use bpf::profile::{ProfileSkel, ProfileSkelBuilder};
use budget::cost::Cost;
use budget::meter::Meter;
use budget::{Programs, Sampler, Told, Window, Windowed, shut_edges};
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use loader::section;
use profile::model::Profile;
use profile::write::Moment;
use session::Setup;
use session::closing::Closing;
use session::progress::State;
use session::quotas::Quotas;
use session::sampling::{Collector, Sampled};
use stacks::StackTable;

use crate::profile::args::Args;
use crate::profile::attach::{self, Attached};
use crate::profile::busy;
use crate::profile::event::Event;
use crate::profile::harvest::{self, Harvest, Idle};
use crate::profile::moments::{Moments, Single};
use crate::profile::quota;
use crate::profile::report;
use crate::profile::sampled::Sums;
use crate::profile::traps;

/// Bytes of stacks under way, and stacks that are known, where it is part of a tool: samples are few beside waits.
const PART_RING: u32 = 2 << 20;
const PART_STACKS: u32 = 1 << 14;
/// The same of the times of samples: 14,000 from one look to the next.
const PART_MOMENTS: u32 = 1 << 20;
/// Stacks of threads: 196 of each of 500 threads.
const PART_ROWS: u32 = 3 << 15;

/// The tool at work.
pub struct Profiling<'a> {
    args: &'a Args,
    skel: ProfileSkel<'static>,
    stacks: StackTable,
    moments: Moments,
    attached: Attached,
    meter: &'a Meter,
    /// CPU quotas, before it looked.
    quotas: Quotas,
    /// What it has seen.
    sums: Sums,
    /// Time that each run of a program on a function costs beside it, ns.
    trap_ns: u64,
    /// From the report on.
    closing: Option<Closing>,
}

impl Sampled for Args {
    type Collector<'a> = Profiling<'a>;

    fn collector<'a>(&'a self, setup: &Setup<'a>) -> Result<Profiling<'a>> {
        let weight = attach::weight(self)?;
        let builder = ProfileSkelBuilder::default();
        let skel = loader::load(builder, &setup.programs, &[], |open| {
            let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
            self.to_bpf(setup.targets, weight, rodata);
            bpf::share_unwind_maps!(open, &setup.tables);
            if setup.tables.is_some() {
                open.maps.stack_ring.set_max_entries(PART_RING)?;
                open.maps.stacks_sent.set_max_entries(PART_STACKS)?;
                open.maps.moments.set_max_entries(PART_MOMENTS)?;
                open.maps.counts.set_max_entries(PART_ROWS)?;
            }
            Ok(open.maps.moments.set_autocreate(self.keeps_moments())?)
        })?;
        let tables = bpf::unwind_maps!(skel);
        let how = self.stacks.setup(tables, self.origin());
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.targets.fill(tgids, tids)?;
        Ok(Profiling {
            args: self,
            stacks: setup.stacks(how, &skel.maps.stack_ring)?,
            moments: Moments::open(self, &skel)?,
            attached: Attached::new(self, &skel)?,
            skel,
            meter: setup.meter,
            quotas: Quotas::default(),
            sums: Sums::default(),
            trap_ns: 0,
            closing: None,
        })
    }
}

impl Profiling<'_> {
    /// Everything, once the collection has ended.
    ///
    /// # Errors
    ///
    /// The BPF side's tables cannot be read.
    pub fn harvest(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<Harvest> {
        self.attached.follow_cpus(&self.skel, true)?;
        self.stacks.absorb();
        let late_cpus = self.attached.late_cpus();
        let sums = std::mem::take(&mut self.sums);
        let idle = sums.idle;
        let mut harvest = sums.harvest(sampler.scale(window.end_ns), window);
        if sampler.is_exact() {
            harvest.estimates = None;
        }
        if let Some(estimates) = &mut harvest.estimates {
            estimates.looked = sampler.share(window.end_ns);
        }
        if !self.args.budget.is_limited() {
            harvest.expect_ticks(self.args, idle, &late_cpus);
        }
        harvest.count_losses(self.args, &self.skel, &self.stacks, &late_cpus)?;
        self.moments.finish(&self.skel, &mut harvest.losses)?;
        Ok(harvest)
    }

    /// Its samples with the names of their functions.
    pub(crate) fn profile(&mut self, harvest: &Harvest) -> Profile {
        report::profile_of(self.args, &harvest.rows, harvest.window, &mut self.stacks)
    }

    /// Number of samples of each process until `end_ns` that no earlier call has counted, whatever each stands for; only where moments
    /// are kept, and instead of them.
    pub(crate) fn sampled(&mut self, end_ns: u64) -> HashMap<u32, u64> {
        self.moments.count_until(end_ns)
    }

    /// Samples that have come and that no earlier call has taken; only where single ones are wanted, and nobody else keeps them.
    pub(crate) fn singles(&mut self) -> Vec<Single> {
        self.moments.take_singles()
    }

    /// Single samples in the order of their times, where a file is to have them; after [`Self::harvest`].
    pub fn moments(&self) -> &[Moment] {
        &self.moments.all
    }
}

impl Windowed for Profiling<'_> {
    fn programs(&self) -> Vec<Programs<'_>> {
        vec![Programs {
            object: self.skel.object(),
            gated: &[],
        }]
    }

    fn trap_ns(&self) -> u64 {
        self.trap_ns
    }

    fn is_ready(&self) -> bool {
        self.attached.has_paused()
    }

    fn prepare(&mut self, first: bool) -> Result<()> {
        if first {
            self.quotas = quota::before(self.args);
        }
        if self.args.budget.is_limited() {
            self.attached.resume(self.args, &self.skel)?;
        }
        self.sums.idle_before_ns = busy::idle_ns(self.args.cpu);
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
        let now = shut_edges(&mut bss.window_end_ns);
        let late_ns = now - bss.window_end_ns;
        let idle_ns = busy::idle_ns(self.args.cpu);
        self.sums.idle = Idle {
            ns: idle_ns.saturating_sub(self.sums.idle_before_ns),
            late_ns,
        };
        if self.args.budget.is_limited() {
            self.attached.pause()?;
        }
        Ok(now)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let rows = harvest::rows(&self.skel)?;
        harvest::clear_rows(&self.skel)?;
        self.moments.absorb_weighted(window.weight().number());
        self.sums.add(rows, harvest::totals(&self.skel)?, window);
        Ok(())
    }
}

impl Collector for Profiling<'_> {
    fn describe(&self) -> String {
        self.args.what()
    }

    fn fds(&self) -> Vec<RawFd> {
        self.args.budget.waking(self.stacks.fds())
    }

    fn get_ready(&mut self) -> Result<()> {
        if self.args.budget.is_limited() && matches!(self.args.event, Event::Uprobe { .. }) {
            let (method, trap_ns) = traps::measure(&self.skel)?;
            // The first window attaches it anew.
            self.attached.change(method);
            self.attached.pause()?;
            self.trap_ns = trap_ns;
        }
        Ok(())
    }

    fn look_around(&mut self, can_afford_more: bool) -> Result<State> {
        self.attached.follow_cpus(&self.skel, false)?;
        let mut state = State::default();
        if can_afford_more {
            self.stacks.absorb();
            state = harvest::progress(&self.skel, &self.stacks)?;
        }
        if !self.args.budget.is_limited() {
            // A window's own weigh more, and are taken in at its end.
            self.moments.absorb();
        }
        Ok(state)
    }

    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()> {
        let mut harvest = self.harvest(sampler, window)?;
        harvest.quotas = quota::used_up(self.args, &self.quotas, &harvest.rows);
        let budget = sampler.summary(window.end_ns);
        let cost = Cost::read(self.meter, [self.skel.object()], budget);
        let (moments, stacks) = (&self.moments, &mut self.stacks);
        let closing = report::report(self.args, &harvest, moments, stacks, &cost)?;
        self.closing = Some(closing);
        Ok(())
    }

    fn closing(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<Closing> {
        self.closing.take().context("no report was made")
    }
}
