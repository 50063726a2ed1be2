//! The collection itself: everything, or what a budget allows.

use anyhow::Result;
use bpf::offcputime::OffcputimeSkel;
use trace::budget::{Sampler, Summary, open_edges, shut_edges};
use trace::collect::{Until, collect};
use trace::command::{Corked, Running};
use trace::iterate::Reseeding;
use trace::loader::section;
use trace::meter::Meter;
use trace::progress::{Progress, State};
use trace::signals::Signals;
use trace::stacks::StackTable;
use trace::window::nanoseconds;

use crate::args::Args;
use crate::harvest::{self, Harvest};
use crate::sampled::{GATED, Sampled};

/// What it has to do with.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut OffcputimeSkel<'static>,
    pub(crate) stacks: &'a mut StackTable,
    pub(crate) signals: &'a Signals,
    pub(crate) meter: &'a Meter,
}

/// What was found, what keeping within the budget took, and the command.
type Collected = (Harvest, Option<Summary>, Option<Running>);

impl Run<'_> {
    pub(crate) fn everything(&mut self, corked: Option<Corked>) -> Result<Collected> {
        let duration = self.args.window.duration;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.takes_late = duration.is_some().into();
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        let start_ns = open_edges(start_ns, end_ns, duration.map(nanoseconds));
        announce(self.args);
        let mut command = corked.map(Corked::start).transpose()?;
        let mut reseeding = Reseeding::default();
        let (skel, stacks) = (&mut *self.skel, &mut *self.stacks);
        let progress = Progress::new(self.args.window.duration, self.args.common.quiet);
        let mut until = Until::new(self.signals, command.as_mut(), start_ns, duration);
        collect(&mut until, &stacks.fds(), &progress, || {
            look_around(skel, stacks, &mut reseeding)
        })?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        shut_edges(&mut bss.window_end_ns);
        let end_ns = bss.window_end_ns;
        self.stacks.absorb();
        section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.takes_late = 0;
        self.stacks.absorb();
        let harvest = Harvest::gather(self.args, self.skel, self.stacks, start_ns, end_ns)?;
        Ok((harvest, None, command))
    }

    pub(crate) fn in_windows(&mut self, percent: f64, corked: Option<Corked>) -> Result<Collected> {
        let (args, mut reseeding) = (self.args, Reseeding::default());
        let mut sampled = Sampled::new(args, self.skel, self.stacks);
        let who = ("offcputime", args.common.verbose);
        let mut sampler = Sampler::begin(who, percent, self.meter, &GATED, &mut sampled)?;
        announce(args);
        let mut command = corked.map(Corked::start).transpose()?;
        let progress = Progress::new(args.window.duration, args.common.quiet);
        let (start_ns, duration) = (sampler.began_ns(), args.window.duration);
        let mut until = Until::new(self.signals, command.as_mut(), start_ns, duration);
        // Nothing wakes it but time: what is new is named when that is paid for.
        collect(&mut until, &[], &progress, || {
            sampler.step(&mut sampled)?;
            let mut state = State::default();
            if sampler.can_afford_more() {
                state = look_around(sampled.skel, sampled.stacks, &mut reseeding)?;
            }
            state.next = sampler.next();
            Ok(state)
        })?;
        let end_ns = sampler.end(&mut sampled)?;
        sampled.stacks.absorb();
        let harvest = sampled.harvest(&sampler, end_ns)?;
        Ok((harvest, Some(sampler.summary(end_ns)), command))
    }
}

fn announce(args: &Args) {
    if !args.common.quiet {
        trace::say!("offcputime: tracing {}", args.window.describe());
    }
}

/// What there is to do some 20 times a second.
fn look_around(
    skel: &OffcputimeSkel<'_>,
    stacks: &mut StackTable,
    reseeding: &mut Reseeding,
) -> Result<State> {
    stacks.absorb();
    let moves = section(skel.maps.bss_data.as_deref(), ".bss")?.cgroup_moves;
    reseeding.follow(moves, skel.links.seed_members.as_ref())?;
    harvest::progress(skel, stacks)
}
