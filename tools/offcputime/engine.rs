//! offcputime at work: from loading its programs to the report.

use std::collections::BTreeSet;
use std::os::fd::RawFd;

use anyhow::{Context, Result};
use bpf::offcputime::types::left_out_sums;
use bpf::offcputime::{OffcputimeSkel, OffcputimeSkelBuilder};
use budget::cost::Cost;
use budget::meter::Meter;
use budget::{LeftOut, Programs, Sampler, Told, Window, Windowed, shut_edges, store};
use host::clock::Edges;
use libbpf_rs::Link;
use libbpf_rs::skel::Skel;
use loader::iterate::{self, Reseeding};
use loader::{maps, section};
use profile::model::Profile;
use session::Setup;
use session::closing::Closing;
use session::progress::State;
use session::quotas::Quotas;
use session::sampling::{Collector, Sampled};
use stacks::unwind::Maps;
use stacks::{StackTable, Walker};
use symbols::Origin;

use crate::offcputime::args::Args;
use crate::offcputime::endpoints;
use crate::offcputime::harvest::{self, Harvest};
use crate::offcputime::on_cpu::OnCpu;
use crate::offcputime::open::{self, Open};
use crate::offcputime::polls;
use crate::offcputime::quota;
use crate::offcputime::report::{self, Report};
use crate::offcputime::sampled::{GATED, Sums};
use crate::offcputime::told::Waits;

/// A ring that nothing comes through, bytes.
const SMALLEST_RING: u32 = 4096;

/// The tool at work.
pub struct Offcputime<'a> {
    args: &'a Args,
    skel: OffcputimeSkel<'static>,
    stacks: StackTable,
    reseeding: Reseeding,
    meter: &'a Meter,
    /// What it has seen.
    sums: Sums,
    /// CPU quotas, when its first window was about to open.
    quotas: Quotas,
    /// Waits one by one, if they were asked for.
    told: Option<Waits>,
    /// Programs on functions, as long as it lives; and what each of their runs costs beside them, ns, where there is a budget.
    _marks: Vec<Link>,
    trap_ns: u64,
    /// From the report on.
    closing: Option<Closing>,
}

impl Sampled for Args {
    type Collector<'a> = Offcputime<'a>;

    fn collector<'a>(&'a self, setup: &Setup<'a>) -> Result<Offcputime<'a>> {
        let walk_on_exit = setup.kernel.has_tracepoint("sched_exit_tp");
        let gated = self.budget.gated(&GATED);
        let builder = OffcputimeSkelBuilder::default();
        let skel = loader::load(builder, &setup.programs, gated, |open| {
            let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
            self.to_bpf(setup.targets, walk_on_exit, rodata);
            bpf::keep_members!(open, setup.programs.contains(&("task_freed", true)));
            if !self.details {
                // Preallocated, and not used.
                open.maps.processes.set_max_entries(1)?;
                open.maps.lengths.set_max_entries(1)?;
                open.maps.endpoints.set_max_entries(1)?;
                open.maps.endpoint_paths.set_max_entries(1)?;
            }
            if !self.cycles {
                open.maps.told_waits.set_max_entries(SMALLEST_RING)?;
            }
            Ok(())
        })?;
        let tables = bpf::unwind_maps!(skel);
        let how = self.stacks.setup(tables, Origin::Tracepoint);
        let stacks = setup.stacks(how, &skel.maps.stack_ring)?;
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.seed(tgids, tids, skel.links.seed_members.as_ref())?;
        let told = self
            .cycles
            .then(|| Waits::listen(&skel, self.marks.as_ref()))
            .transpose()?;
        let marks = match &self.marks {
            Some(marks) => marks.attach(&skel, &self.targets)?,
            None => Vec::new(),
        };
        let marks_cost = self.marks.as_ref().filter(|_| self.budget.is_limited());
        let trap_ns = marks_cost.map(|marks| marks.trap_ns(&skel)).transpose()?;
        Ok(Offcputime {
            args: self,
            told,
            _marks: marks,
            trap_ns: trap_ns.unwrap_or(0),
            skel,
            stacks,
            reseeding: Reseeding::default(),
            meter: setup.meter,
            sums: Sums::default(),
            quotas: Quotas::default(),
            closing: None,
        })
    }
}

impl Offcputime<'_> {
    /// Learns the stacks of the waits that are open at the end, before late events stop to close those of threads that run on.
    fn walk_waiting(&mut self) -> Result<()> {
        self.stacks.absorb();
        let waiting = iterate::run(self.skel.links.waiting_members.as_ref())?;
        let walked = &mut self.sums.walked;
        walked.clear();
        open::describe_waiting(self.args, &waiting, &mut self.stacks, walked)?;
        polls::tell(&waiting, &self.skel.maps.polled_before)
    }

    /// Threads walk their stacks when they leave their CPUs from the moment on that the programs are attached again: however long
    /// the window takes to open then, the waits are known that it opens in.
    fn expect_another(&mut self) -> Result<()> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        store(&mut bss.window_start_ns, 0);
        store(&mut bss.window_end_ns, 0);
        bss.walk_on_leaving = 1;
        Ok(())
    }

    /// Takes in what has come.
    fn absorb(&mut self) {
        self.stacks.absorb();
        self.absorb_told();
    }

    fn absorb_told(&mut self) {
        if let Some(told) = &mut self.told {
            told.absorb(&self.sums.known);
        }
    }

    /// Everything, once the collection has ended.
    ///
    /// # Errors
    ///
    /// The BPF side's tables cannot be read.
    pub fn harvest(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<Harvest> {
        self.stacks.absorb();
        let sums = std::mem::take(&mut self.sums);
        let mut harvest = sums.harvest(sampler.scale(window.end_ns), window);
        if sampler.is_exact() {
            harvest.estimates = None;
        }
        let cycles = self.told.take().map(|told| told.finish(&mut self.stacks));
        harvest.count_losses(self.args, &self.skel, &self.stacks)?;
        if let Some(cycles) = &cycles {
            cycles.count_losses(&mut harvest.losses);
        }
        harvest.cycles = cycles;
        if self.args.details {
            harvest.details.endpoints = endpoints::read(&self.skel)?;
        }
        let is_choice = !self.args.targets.are_all();
        harvest.quotas = quota::used_up(&self.quotas, &harvest.rows, is_choice);
        Ok(harvest)
    }

    /// Tells where threads ran, by samples of another engine, for pieces of work have them. It is told after each time that it takes in
    /// waits, of all samples until then.
    pub(crate) fn add_samples(&mut self, samples: impl Iterator<Item = OnCpu>) {
        if let Some(told) = &mut self.told {
            told.add_samples(samples, &mut self.stacks);
        }
    }

    /// Its unwind tables, for other engines.
    pub(crate) fn tables(&self) -> Result<(Maps, Walker)> {
        Ok((bpf::unwind_maps!(self.skel), self.stacks.walker()))
    }

    /// Its waits with the names of their functions. `is_choice`: threads were asked for, or chosen.
    pub(crate) fn profile(&mut self, harvest: &Harvest, is_choice: bool) -> Profile {
        report::profile_of(self.args, is_choice, harvest, &mut self.stacks)
    }

    /// The part of a harvest with details that is these processes'; losses are those of all.
    pub(crate) fn of_processes(&self, mut harvest: Harvest, tgids: &BTreeSet<u32>) -> Harvest {
        harvest.accounting = harvest.details.time_of(tgids).into();
        harvest.rows.retain(|row| tgids.contains(&row.task.tgid));
        harvest.details.queue.retain(|tgid, _| tgids.contains(tgid));
        harvest.quotas = quota::used_up(&self.quotas, &harvest.rows, true);
        if let Some(cycles) = &mut harvest.cycles {
            cycles.retain(tgids);
        }
        harvest
    }

    /// Its part of a balance, without the losses and the cost of other engines.
    pub(crate) fn balance(&self, harvest: &Harvest, profile: &Profile, cost: &Cost) -> Closing {
        let args = self.args;
        let report = Report {
            args,
            harvest,
            profile,
            cost,
        };
        report.closing(&self.stacks, 0)
    }
}

impl Windowed for Offcputime<'_> {
    fn programs(&self) -> Vec<Programs<'_>> {
        vec![Programs {
            object: self.skel.object(),
            gated: &GATED,
        }]
    }

    fn trap_ns(&self) -> u64 {
        self.trap_ns
    }

    fn leave_out(&mut self, below_ns: u64) -> Result<bool> {
        let wants_stacks = !self.args.stacks.kernel_stacks;
        let walks_on_exit = section(self.skel.maps.rodata_data, ".rodata")?
            .config
            .walk_on_exit
            != 0;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        // The length of a wait is not known yet if the stack is walked before the thread leaves its CPU.
        // A piece of work begins and ends where a stack says.
        let can = wants_stacks && !self.args.cycles && walks_on_exit && bss.walk_on_leaving == 0;
        if can {
            bss.stacks_from_ns = below_ns;
        }
        Ok(can)
    }

    fn left_out(&self) -> Result<LeftOut> {
        let per_cpu: Vec<left_out_sums> = maps::per_cpu(&self.skel.maps.left_out, 0)?;
        let none = LeftOut::default();
        Ok(per_cpu.iter().fold(none, |sum, cpu| LeftOut {
            waits: sum.waits + cpu.waits,
            ns: sum.ns + cpu.ns,
            of_ns: sum.of_ns + cpu.of_ns,
        }))
    }

    fn prepare(&mut self, first: bool) -> Result<()> {
        if first {
            self.quotas = Quotas::take();
        }
        if self.args.budget.is_limited() {
            let waiting = iterate::run(self.skel.links.open_members.as_ref())?;
            let known = &mut self.sums.known;
            open::describe_waiting(self.args, &waiting, &mut self.stacks, known)?;
            polls::tell(&waiting, &self.skel.maps.polled_before)?;
        }
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.takes_late = first.into();
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
        // Later ones are short, and the threads that leave their CPUs in them walk their stacks before.
        let is_first = bss.walk_on_leaving == 0;
        if is_first {
            self.walk_waiting()?;
        }
        section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.takes_late = 0;
        // Still attached: what happens to a target meanwhile tells what it did in the window.
        self.sums.closing = iterate::run(self.skel.links.close_members.as_ref())?;
        Ok(now)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        self.absorb();
        let edges = (window.start_ns, window.end_ns);
        let closing = std::mem::take(&mut self.sums.closing);
        let closing = (&closing[..], edges);
        let stacks = Open {
            walked: std::mem::take(&mut self.sums.walked),
            known: &mut self.sums.known,
            table: &mut self.stacks,
        };
        let again = || iterate::run(self.skel.links.close_members.as_ref());
        let part = Harvest::gather(self.args, &self.skel, stacks, closing, again)?;
        if let Some(told) = &mut self.told {
            told.end_window(part.rows.iter(), edges);
        }
        let totals = harvest::totals(&self.skel)?;
        self.sums.add(&part, totals, window);
        if self.args.budget.is_limited() {
            self.expect_another()?;
        }
        Ok(())
    }
}

impl Collector for Offcputime<'_> {
    fn fds(&self) -> Vec<RawFd> {
        let mut fds = self.args.budget.waking(self.stacks.fds());
        fds.extend(self.told.iter().map(Waits::fd));
        fds
    }

    fn look_around(&mut self, can_afford_more: bool) -> Result<State> {
        if !can_afford_more {
            // More waits than there is room for would be lost.
            self.absorb_told();
            return Ok(State::default());
        }
        self.absorb();
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        harvest::progress(&self.skel, &self.stacks)
    }

    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()> {
        let harvest = self.harvest(sampler, window)?;
        let budget = sampler.summary(window.end_ns);
        let cost = Cost::read(self.meter, [self.skel.object()], budget);
        let closing = report::report(self.args, &harvest, &mut self.stacks, &cost)?;
        self.closing = Some(closing);
        Ok(())
    }

    fn closing(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<Closing> {
        self.closing.take().context("no report was made")
    }
}
