//! syscount at work: from loading its programs to the last report.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::Result;
use bpf::syscount::{SyscountLinks, SyscountSkel, SyscountSkelBuilder};
use budget::cost::Cost;
use budget::meter::{Meter, losses};
use budget::{Limit, add_shared, ended_at, store, store_half};
use hist::harvest::wait_for_running_programs;
use host::clock::{Edges, monotonic_ns, nanoseconds};
use libbpf_rs::skel::Skel;
use loader::counters::Counters;
use loader::iterate::{self, Reseeding};
use loader::section;
use session::closing::Closing;
use session::next;
use session::progress::State;
use session::{Engine, Options, Setup};

use crate::syscount::args::Args;
use crate::syscount::harvest::{self, Rows};
use crate::syscount::interval::Interval;
use crate::syscount::report;

/// Advice for runs that cost too much.
const REMEDY: &str = "raise it, or ask for fewer processes (-p)";

/// The BPF side has room for 10,240, in two halves.
const MANY_GROUPS: u64 = 3_000;

/// The tool at work.
pub(crate) struct Syscount<'a> {
    args: &'a Args,
    skel: SyscountSkel<'static>,
    counters: Counters,
    reseeding: Reseeding,
    rows: Rows,
    /// Groups that the BPF side had made when it was last emptied.
    groups: u64,
    /// Calls in the intervals so far.
    calls: u64,
    meter: &'a Meter,
    /// With `--max-overhead`.
    limit: Option<Limit<'a>>,
}

impl<'a> Syscount<'a> {
    pub(crate) fn load(args: &'a Args, setup: &Setup<'a>) -> Result<Self> {
        let builder = SyscountSkelBuilder::default();
        let skel = loader::load(builder, &setup.programs, &[], |open| {
            args.to_bpf(
                setup.targets,
                section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
            );
            bpf::keep_members!(open, setup.programs.contains(&("task_freed", true)));
            // Preallocated, and not used.
            open.maps.wholes.set_max_entries(1)?;
            Ok(())
        })?;
        let (tgids, tids) = (&skel.maps.target_tgids, &skel.maps.target_tids);
        setup.seed(tgids, tids, skel.links.seed_members.as_ref())?;
        Ok(Self {
            args,
            counters: Counters::new(skel.object(), &harvest::LOSSES, &[])?,
            skel,
            reseeding: Reseeding::default(),
            rows: Rows::default(),
            groups: 0,
            calls: 0,
            meter: setup.meter,
            limit: None,
        })
    }

    /// Cost of the run, which has got to `end_ns`.
    fn cost(&self, end_ns: u64) -> Cost {
        let budget = self.limit.as_ref().map(|limit| limit.summary(end_ns));
        Cost::read(self.meter, [self.skel.object()], budget)
    }

    /// Goes on in the other half, and takes in the one that was written so far. Where an `interval_ends`, with the parts of the calls
    /// that are open then. Returns when that was, ns.
    fn turn(&mut self, interval_ends: bool) -> Result<u64> {
        self.groups = harvest::totals(&self.skel)?.groups;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let ended = bss.epoch;
        let end_ns = ended_at(bss.window_end_ns);
        if interval_ends {
            store_half(&mut bss.open_epoch, ended);
        } else if bss.window_end_ns > 0 {
            // The edge is yet to come.
            store_half(&mut bss.open_epoch, 1 - ended);
        }
        store_half(&mut bss.epoch, 1 - ended);
        // Behind the half: a call that returns in between is in the new one alone.
        if interval_ends {
            store_half(&mut bss.is_open_taken, 0);
            store(&mut bss.edge_ns, end_ns);
        }
        wait_for_running_programs();
        if interval_ends {
            iterate::run(self.skel.links.count_open_calls.as_ref())?;
            let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
            // No wait for programs that run now: it takes as long as a short interval, and only a call that began before all
            // this can be one that is missed.
            store_half(&mut bss.is_open_taken, 1);
        }
        let homeless = self.rows.gather(&self.skel, ended)?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        add_shared(&mut bss.groups_full, homeless);
        Ok(end_ns)
    }

    /// Takes in rows before there are too many for the BPF side: builds start many processes.
    fn relieve(&mut self, groups: u64) -> Result<()> {
        if groups - self.groups < MANY_GROUPS {
            return Ok(());
        }
        self.turn(false).map(drop)
    }
}

impl Engine for Syscount<'_> {
    fn open(&mut self, length: Option<Duration>) -> Result<u64> {
        let start_ns = monotonic_ns();
        if let Some(length) = length {
            self.close_at(start_ns.saturating_add(nanoseconds(length)))?;
        }
        section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = start_ns;
        let who = (Args::NAME, REMEDY, self.args.common.verbose);
        let budget = &self.args.budget;
        self.limit = budget.limit(who, self.meter, self.skel.object())?;
        Ok(start_ns)
    }

    fn describe(&self) -> String {
        "system calls".into()
    }

    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn step(&mut self) -> Result<State> {
        let moves = section(self.skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
        let seed = self.skel.links.seed_members.as_ref();
        self.reseeding.follow(moves, seed)?;
        let totals = harvest::totals(&self.skel)?;
        self.relieve(totals.groups)?;
        let mut state = State {
            events: totals.calls,
            lost: losses(self.skel.object(), &self.counters)?.total(),
            ..State::default()
        };
        if let Some(limit) = &mut self.limit {
            limit.look(self.skel.object());
            state.next = limit.next();
        }
        Ok(state)
    }

    fn close_at(&mut self, end_ns: u64) -> Result<()> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let half = bss.epoch;
        // The order counts: who sees the edge must see the half that ends there.
        store_half(&mut bss.open_epoch, half);
        store(&mut bss.edge_ns, end_ns);
        store_half(&mut bss.is_open_taken, 0);
        store(&mut bss.window_end_ns, end_ns);
        Ok(())
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let limit = self.limit.as_mut();
        let is_used_up = limit.is_some_and(|limit| limit.end_interval(self.skel.object()));
        let at_ns = self.turn(true)?;
        *end_ns = at_ns;
        if is_used_up {
            // From now on nothing costs any more, though a command may go on.
            self.skel.links = SyscountLinks::default();
        }
        let interval = Interval {
            start_ns,
            end_ns: at_ns,
            rows: self.rows.take(self.args.only_failures()),
            under_way_at_start: harvest::totals(&self.skel)?.under_way_at_start,
            losses: losses(self.skel.object(), &self.counters)?,
            cost: self.cost(at_ns),
        };
        let returned = interval.rows.iter().map(|row| row.returned.count());
        self.calls += returned.sum::<u64>();
        let mut out = io::stdout().lock();
        report::write(self.args, interval, next::is_there, &mut out)
    }

    fn closing(&mut self, window: Edges) -> Result<Closing> {
        Ok(Closing {
            check: None,
            events: (self.calls, "calls"),
            losses: losses(self.skel.object(), &self.counters)?,
            cost: self.cost(window.end_ns),
            ..Closing::default()
        })
    }
}
