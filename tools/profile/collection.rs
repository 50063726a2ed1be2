//! The collection itself: everything, or what a budget allows.

use anyhow::Result;
use bpf::profile::ProfileSkel;
use trace::budget::{Sampler, Summary, open_edges, shut_edges};
use trace::collect::{Until, collect};
use trace::command::{Corked, Running};
use trace::loader::section;
use trace::meter::Meter;
use trace::progress::{Progress, State};
use trace::signals::Signals;
use trace::stacks::StackTable;
use trace::window::{Edges, nanoseconds};

use crate::args::Args;
use crate::attach::Attached;
use crate::busy;
use crate::harvest::{self, Harvest, Span};
use crate::moments::Moments;
use crate::sampled::Sampled;

/// What it has to do with.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a Args,
    pub(crate) skel: &'a mut ProfileSkel<'static>,
    pub(crate) stacks: &'a mut StackTable,
    pub(crate) moments: &'a mut Moments,
    pub(crate) attached: &'a mut Attached,
    pub(crate) signals: &'a Signals,
    pub(crate) meter: &'a Meter,
}

/// What was found, what keeping within the budget took, and the command.
type Collected = (Harvest, Option<Summary>, Option<Running>);

impl Run<'_> {
    pub(crate) fn everything(&mut self, corked: Option<Corked>) -> Result<Collected> {
        let idle_before_ns = busy::idle_ns(self.args.cpu);
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let duration = self.args.window.duration;
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        let start_ns = open_edges(start_ns, end_ns, duration.map(nanoseconds));
        self.args.announce();
        let mut command = corked.map(Corked::start).transpose()?;
        let progress = Progress::new(duration, self.args.common.quiet);
        let mut until = Until::new(self.signals, command.as_mut(), start_ns, duration);
        let (skel, stacks) = (&mut *self.skel, &mut *self.stacks);
        let attached = &mut *self.attached;
        collect(&mut until, &stacks.fds(), &progress, || {
            attached.follow_cpus(skel, false)?;
            stacks.absorb();
            self.moments.absorb();
            harvest::progress(skel, stacks)
        })?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let looked_ns = shut_edges(&mut bss.window_end_ns);
        let end_ns = bss.window_end_ns;
        let idle_ns = busy::idle_ns(self.args.cpu).saturating_sub(idle_before_ns);
        self.stacks.absorb();
        self.attached.follow_cpus(self.skel, true)?;
        let span = Span {
            window: Edges { start_ns, end_ns },
            idle_ns,
            late_ns: looked_ns - end_ns,
            late_cpus: self.attached.late_cpus(),
        };
        let harvest = Harvest::gather(self.args, self.skel, self.stacks, &span)?;
        Ok((harvest, None, command))
    }

    pub(crate) fn in_windows(&mut self, percent: f64, corked: Option<Corked>) -> Result<Collected> {
        let args = self.args;
        let (moments, attached) = (&mut *self.moments, &mut *self.attached);
        let mut sampled = Sampled::new(args, self.skel, self.stacks, moments, attached)?;
        let who = ("profile", args.common.verbose);
        let mut sampler = Sampler::begin(who, percent, self.meter, &[], &mut sampled)?;
        args.announce();
        let mut command = corked.map(Corked::start).transpose()?;
        let progress = Progress::new(args.window.duration, args.common.quiet);
        let (start_ns, duration) = (sampler.began_ns(), args.window.duration);
        let mut until = Until::new(self.signals, command.as_mut(), start_ns, duration);
        // Nothing wakes it but time: what is new is named when that is paid for.
        collect(&mut until, &[], &progress, || {
            sampler.step(&mut sampled)?;
            sampled.follow_cpus(false)?;
            let mut state = State::default();
            if sampler.can_afford_more() {
                sampled.stacks.absorb();
                state = harvest::progress(sampled.skel, sampled.stacks)?;
            }
            state.next = sampler.next();
            Ok(state)
        })?;
        let end_ns = sampler.end(&mut sampled)?;
        sampled.follow_cpus(true)?;
        sampled.stacks.absorb();
        let harvest = sampled.harvest(&sampler, end_ns)?;
        Ok((harvest, Some(sampler.summary(end_ns)), command))
    }
}
