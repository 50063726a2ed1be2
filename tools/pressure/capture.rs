//! From attaching to the last interval.

use std::cmp::Reverse;
use std::fs;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::stacks::unwind::Method;
use anyhow::Result;
use bpf::pressure::types::pressure_config;
use bpf::pressure::{PressureLinks, PressureSkel, PressureSkelBuilder};
use budget::meter::{Meter, losses};
use budget::{Allowed, Limit, Next};
use host::clock::monotonic_ns;
use libbpf_rs::skel::Skel;
use loader::counters::Counters;
use loader::iterate;
use loader::section;
use profile::ends::Ends;
use profile::losses::Losses;
use profile::rank::Rank;
use session::probe;
use session::quotas::Quotas;
use session::targets::cgroup2_mount;
use session::{Options, Start};

use crate::pressure::args::Args;
use crate::pressure::cgroups::Snapshots;
use crate::pressure::ended::Ended;
use crate::pressure::harvest::{self, ON_CPU};
use crate::pressure::interval::{Interval, Quota};
use crate::pressure::parties::{self, Party};
use crate::pressure::psi::{self, Resource, Source};
use crate::pressure::stacks::{self, Stacks};
use crate::pressure::task::TaskStock;
use crate::pressure::victims::Filter;
use crate::pressure::waits::Looks;
use host::utilisation;

/// Everything at the end of one interval and the start of the next.
#[derive(Default)]
struct Edge {
    ns: u64,
    psi: psi::Snapshot,
    usage: utilisation::Snapshot,
    throttled_ns: u64,
    block_errors: u64,
    cgroups: Option<Snapshots>,
    quotas: Arc<Quotas>,
}

/// Programs that are loaded, or run.
pub(crate) struct Capture {
    pub(crate) skel: PressureSkel<'static>,
    pub(crate) counters: Counters,
    stacks: Option<Stacks>,
    source: Source,
    filter: Filter,
    all_cgroups: Option<PathBuf>,
    counts_block_errors: bool,
    edge: Edge,
    /// What has been handed out and is in no interval yet.
    gathered: Vec<TaskStock>,
    /// The same of tasks that have ended.
    ended: Ended,
    /// How many of those are told no name of.
    unnamed: u64,
    /// Tasks that had ended when that was looked for last.
    exits: u64,
    looks: Looks,
    /// By the budget.
    allowed: Allowed,
}

/// Advice for runs that cost too much.
const REMEDY: &str = "raise it, or trace for less time";

/// A ring buffer is whole pages.
const SMALLEST_RING: u32 = 4096;

impl Capture {
    /// Loads; nothing runs yet.
    pub(crate) fn prepare(args: &Args, start: &Start, source: &Source) -> Result<Self> {
        let Start {
            kernel, targets, ..
        } = start;
        let programs = args.programs(kernel, targets);
        if args.common.verbose {
            probe::say(Args::NAME, kernel, Args::NEEDS, &programs);
        }
        let has_psi = Source::System.absence().is_none();
        let builder = PressureSkelBuilder::default();
        let skel = loader::prepare(builder, &programs, |open| {
            let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
            rodata.targets = bpf::target_config!(bpf::pressure::types, targets);
            bpf::unwind_by!(rodata, Method::Auto);
            rodata.config = pressure_config {
                psi: has_psi.into(),
                stacks: args.stacks.into(),
                walk_on_exit: programs.contains(&("sched_exit", true)).into(),
            };
            rodata.locks_in_hash = u32::from(!kernel.has_spin_lock());
            bpf::keep_members!(open, programs.contains(&("task_freed", true)));
            let cpus = u32::try_from(loader::maps::possible_cpus()?)?;
            open.maps.stalls.set_max_entries(cpus)?;
            open.maps.stall_locks.set_max_entries(cpus)?;
            if !args.stacks {
                // Preallocated, and not used.
                open.maps.stall_stacks.set_max_entries(1)?;
                open.maps.stacks_sent.set_max_entries(1)?;
                open.maps.unwind_processes.set_max_entries(1)?;
                open.maps.unwind_files.set_max_entries(1)?;
                open.maps.stack_ring.set_max_entries(SMALLEST_RING)?;
            }
            Ok(())
        })?;
        let stacks = args
            .stacks
            .then(|| Stacks::open(&skel, args.common.json, args.budget.is_limited()))
            .transpose()?;
        Ok(Self {
            counters: Counters::new(skel.object(), &harvest::LOSSES, &[])?,
            skel,
            stacks,
            source: source.clone(),
            filter: args.filter(),
            all_cgroups: args
                .cgroups
                .then(cgroup2_mount)
                .flatten()
                .map(PathBuf::from),
            counts_block_errors: programs.contains(&("block_rq_error", true)),
            edge: Edge::default(),
            gathered: Vec::new(),
            ended: Ended::default(),
            unnamed: 0,
            exits: 0,
            looks: Looks::new(),
            allowed: Allowed::Everything,
        })
    }

    /// Attaches, looks at what every task is doing, and lets time count. Returns the budget, if there is one.
    pub(crate) fn begin<'a>(&mut self, args: &Args, meter: &'a Meter) -> Result<Option<Limit<'a>>> {
        loader::attach(&mut self.skel)?;
        iterate::run(self.skel.links.seed_members.as_ref())?;
        self.filter.follow_cgroups();
        let (edge, _) = self.edge()?;
        let epoch = 1 - harvest::epoch(&self.skel)?;
        stacks::clear(&self.skel, epoch)?;
        self.edge = edge;
        let who = (Args::NAME, REMEDY, args.common.verbose);
        args.budget.limit(who, meter, self.skel.object())
    }

    /// With `-s`: readable when [`Self::absorb_stacks`] is due, which threads that make unwind tables wait for.
    pub(crate) fn stacks_fd(&self) -> Option<RawFd> {
        self.stacks.as_ref().map(Stacks::fd)
    }

    /// With `-s`: takes in stacks, and what processes have mapped.
    pub(crate) fn absorb_stacks(&mut self) {
        if let Some(stacks) = &mut self.stacks {
            stacks.absorb();
        }
    }

    /// To be called often: what has ended makes room.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.absorb_exited()?;
        // New stacks can be named after the collection, too.
        if self.allowed == Allowed::Everything {
            self.absorb_stacks();
            let filter = &self.filter;
            self.looks.step(&|tgid, tid| filter.chooses(tgid, tid));
        }
        Ok(())
    }

    /// What all tasks have lost, caused and used since the last time.
    fn take_stock(&mut self) -> Result<()> {
        self.gathered.extend(harvest::take_stock(&self.skel)?);
        Ok(())
    }

    /// The same of tasks that have ended.
    fn absorb_exited(&mut self) -> Result<()> {
        // Looking through an empty table takes as long as through a full one.
        let exits = harvest::exits(&self.skel)?;
        if exits != self.exits {
            self.exits = exits;
            let exited = harvest::take_exited(&self.skel)?;
            if self.ended.will_fold(exited.len()) {
                self.filter.follow_cgroups();
            }
            self.ended.extend(exited, &self.filter);
        }
        Ok(())
    }

    fn take_gathered(&mut self) -> Vec<TaskStock> {
        let (ended, unnamed) = self.ended.take();
        self.unnamed += unnamed;
        let mut gathered = std::mem::take(&mut self.gathered);
        // Behind what the same tasks did before they ended.
        gathered.extend(ended);
        gathered
    }

    /// Leaves out stacks where the budget wants that; when that is to be looked at again.
    pub(crate) fn heed(&mut self, limit: &mut Limit<'_>) -> Result<Next> {
        self.allowed = limit.look(self.skel.object());
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.without_stacks = (self.allowed != Allowed::Everything).into();
        Ok(limit.next())
    }

    /// When the interval under way began, ns.
    pub(crate) fn start_ns(&self) -> u64 {
        self.edge.ns
    }

    /// With what happened in the interval that ends.
    fn edge(&mut self) -> Result<(Edge, Vec<TaskStock>)> {
        let psi = psi::Snapshot::take(&self.source);
        let ns = monotonic_ns();
        let throttled_ns = harvest::throttled_ns(&self.skel, ns)?;
        harvest::turn(&mut self.skel, ns)?;
        self.take_stock()?;
        self.step()?;
        let edge = Edge {
            ns,
            psi,
            usage: utilisation::Snapshot::take(),
            throttled_ns,
            block_errors: harvest::block_errors(&self.skel)?,
            cgroups: self.all_cgroups.as_deref().map(Snapshots::take),
            // The slowest: the kernel sums up the account of each group.
            quotas: self.quotas(throttled_ns),
        };
        let tasks = self.take_gathered();
        Ok((edge, tasks))
    }

    /// The accounts of quotas. Nobody has run out of one while nobody was throttled.
    fn quotas(&self, throttled_ns: u64) -> Arc<Quotas> {
        if self.edge.ns > 0 && throttled_ns == self.edge.throttled_ns {
            return Arc::clone(&self.edge.quotas);
        }
        Arc::new(Quotas::take())
    }

    /// Groups whose quota was used up, the one with most of the time that was lost first.
    fn quotas_since(&self, before: &Edge, victims: &[Party]) -> Vec<Quota> {
        let used_up = self.edge.quotas.used_up_since(&before.quotas);
        if used_up.is_empty() {
            return Vec::new();
        }
        let groups_of = |tgid: &u32| fs::read_to_string(format!("/proc/{tgid}/cgroup")).ok();
        let of_victims: Vec<(&Party, u32, String)> = victims
            .iter()
            .filter_map(|party| Some((party, party.tgid?, groups_of(&party.tgid?)?)))
            .collect();
        let mut quotas: Vec<(u64, Quota)> = Vec::new();
        for group in used_up {
            let own = of_victims.iter().filter(|(.., lines)| group.is_in(lines));
            let losses: Vec<(u64, u32, u64)> = own
                .map(|(party, tgid, _)| (party.account.lost_ns[ON_CPU], *tgid, party.threads))
                .collect();
            let lost_ns = losses.iter().map(|(ns, ..)| ns).sum();
            // A thread stands still with one run queue at a time.
            let threads: u64 = losses.iter().map(|(.., threads)| threads).sum();
            let most_ns = group.throttled_ns.saturating_mul(threads).min(lost_ns);
            let victim = losses.into_iter().max().map(|(_, tgid, _)| tgid);
            quotas.push((
                lost_ns,
                Quota {
                    group,
                    victim,
                    most_ns,
                },
            ));
        }
        if self.filter.is_choice() {
            quotas.retain(|(_, quota)| quota.victim.is_some());
        }
        quotas.rank_by_key(|(lost_ns, _)| Reverse(*lost_ns));
        quotas.into_iter().map(|(_, quota)| quota).collect()
    }

    /// Ends an interval and begins the next; if there is none, because the budget `is_used_up`, nothing costs any more.
    pub(crate) fn take(&mut self, is_used_up: bool) -> Result<Interval> {
        let (now, tasks) = self.edge()?;
        if is_used_up {
            self.skel.links = PressureLinks::default();
        }
        let before = std::mem::replace(&mut self.edge, now);
        let now = &self.edge;
        self.filter.follow_cgroups();
        let wanted: Vec<TaskStock> = tasks
            .iter()
            .filter(|task| self.filter.is_wanted(task))
            .cloned()
            .collect();
        let lost_on = |on: usize| wanted.iter().map(|task| task.account.lost_ns[on]).sum();
        let task_ns = [0, 1, 2].map(lost_on);
        let epoch = 1 - harvest::epoch(&self.skel)?;
        let filter = &self.filter;
        let stacks = self.stacks.as_mut().map(|stacks| {
            stacks.take(&self.skel, epoch, |tgid, tid, comm| {
                filter.names(tgid, tid, comm)
            })
        });
        let not_us = |party: &Party| party.tgid != Some(std::process::id());
        let cgroups = now.cgroups.as_ref().zip(before.cgroups.as_ref());
        let mut victims = parties::group(&wanted);
        victims.retain(not_us);
        let quotas = self.quotas_since(&before, &victims);
        let mut throttled_ns = now.throttled_ns.saturating_sub(before.throttled_ns);
        if self.filter.is_choice() {
            // Others' time is in it.
            throttled_ns = throttled_ns.min(quotas.iter().map(|quota| quota.most_ns).sum());
        }
        Ok(Interval {
            quotas,
            waits: self.looks.take(&self.filter),
            start_ns: before.ns,
            end_ns: now.ns,
            ended_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            cgroup: match &self.source {
                Source::System => None,
                Source::Cgroup(path) => Some(path.clone()),
            },
            asked: self.filter.tgids.first().copied(),
            is_filtered: self.filter.is_finer_than_psi(),
            usage: now.usage.since(&before.usage),
            psi: Resource::ALL.map(|resource| now.psi.since(&before.psi, resource)),
            task_ns,
            throttled_ns,
            victims,
            culprits: parties::group(&tasks).into_iter().filter(not_us).collect(),
            cgroups: cgroups.map_or_else(Vec::new, |(now, before)| now.since(before)),
            block_errors: self
                .counts_block_errors
                .then(|| now.block_errors.saturating_sub(before.block_errors)),
            losses: self.losses()?,
            stacks: stacks.transpose()?.unwrap_or_default(),
        })
    }

    /// Everything that was not counted since the start.
    pub(crate) fn losses(&self) -> Result<Losses> {
        let mut losses = losses(self.skel.object(), &self.counters)?;
        losses.count(
            "unnamed",
            "names of tasks that ended: too many",
            self.unnamed,
        );
        if let Some(stacks) = &self.stacks {
            stacks.count_losses(&mut losses);
        }
        Ok(losses)
    }

    /// Completeness of user stacks, with `-s`.
    pub(crate) fn ends(&self) -> Option<Ends> {
        self.stacks.as_ref().and_then(Stacks::ends)
    }

    /// Distinct stacks, with `-s`.
    pub(crate) fn stacks(&self) -> Option<usize> {
        self.stacks.as_ref().map(Stacks::len)
    }
}
