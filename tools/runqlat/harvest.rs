//! One interval out of the BPF side's maps.

use std::mem::size_of;
use std::sync::Arc;

use anyhow::Result;
use bpf::runqlat::RunqlatSkel;
use bpf::runqlat::types::{
    culprit, culprit_key, gone_name, group_id, open_wait, ready_thread, runqlat_totals,
};
use budget::Estimates;
use budget::meter::losses;
use hist::harvest::{Group as Waits, take_groups, take_half, take_whole};
use host::task::{comm_of, comm_text};
use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, MapFlags};
use loader::counters::{Counters, Words};
use loader::iterate;
use loader::maps;
use profile::losses::Losses;
use profile::rank::Rank;
use session::progress::State;
use session::quotas::UsedUp;

use crate::runqlat::args::{Args, Group};

/// Stands for the thread that a wait was behind; the BPF side's.
pub(crate) const QUOTA_TID: u32 = u32::MAX;

/// Name of a task that has ended without leaving its own.
pub(crate) const EXITED: &str = "[exited]";

/// Waits that were for a quota, for some of their time at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutQuota {
    /// Number of them.
    pub waits: u64,
    /// Their length, ns.
    pub sum_ns: u64,
}

/// A task that others waited behind.
pub struct Culprit {
    /// The process that waited; 0: all that did.
    pub victim: u32,
    /// Its process.
    pub tgid: u32,
    /// 0: tasks that ran too long ago to be remembered.
    pub tid: u32,
    /// Its name.
    pub comm: Arc<str>,
    /// Time that others waited while it ran, ns.
    pub caused_ns: u64,
    /// Number of their waits.
    pub waits: u64,
}

/// A wait that is not over.
pub struct OpenWait {
    /// Who waits.
    pub tid: u32,
    /// Its name.
    pub comm: Arc<str>,
    /// For how long by now, or by the window's end, ns.
    pub wait_ns: u64,
}

/// A thread that could have run from before the window on, and never did.
pub struct Ready {
    /// Its ID.
    pub tid: u32,
    /// Its name.
    pub comm: Arc<str>,
    /// It has no CPU quota at the end.
    pub without_quota: bool,
}

/// One report's worth.
#[derive(Default)]
pub struct Interval {
    /// When it began, ns.
    pub start_ns: u64,
    /// When it ended, ns.
    pub end_ns: u64,
    /// By id; a single one unless grouping was asked for.
    pub waits: Vec<Waits<group_id>>,
    /// Most time caused first, by waits that were not for want of quota.
    pub culprits: Vec<Culprit>,
    /// Waits that were behind nobody.
    pub without_quota: WithoutQuota,
    /// Groups of those asked for whose CPU quota was used up.
    pub quotas: Vec<UsedUp>,
    /// A quota was used up whose group has no name here.
    pub has_nameless_quota: bool,
    /// Longest first.
    pub open: Vec<OpenWait>,
    /// Threads whose wait has neither begun nor ended since the run began: it has no length. By ID; empty where windows are cut out
    /// of the time.
    pub ready: Vec<Ready>,
    /// Since the start of the run.
    pub under_way_at_start: u64,
    /// Since the start of the run.
    pub losses: Losses,
    /// Where not everything was looked at.
    pub estimates: Option<Estimates>,
}

/// Waits that ended in the half `epoch`, which nobody writes any more.
pub(crate) fn waits(
    args: &Args,
    skel: &RunqlatSkel<'_>,
    epoch: u32,
) -> Result<Vec<Waits<group_id>>> {
    if args.group() == Group::Machine {
        return Ok(vec![Waits {
            id: group_id::default(),
            comm: "".into(),
            histogram: take_whole(&skel.maps.wholes, epoch)?,
        }]);
    }
    let mut waits = take_groups::<group_id>(&skel.maps.groups, &skel.maps.buckets, epoch)?;
    waits.rank_by_key(|waits| waits.id.id);
    Ok(waits)
}

/// The same of the tasks that were waited behind; the most time first.
pub(crate) fn culprits(skel: &RunqlatSkel<'_>, epoch: u32) -> Result<Vec<Culprit>> {
    let mut culprits = Vec::new();
    let is_ours = |key: &culprit_key| key.epoch == epoch;
    let entries: Vec<(_, culprit)> = take_half(&skel.maps.culprits, "clear map", is_ours)?;
    for (key, value) in entries {
        culprits.push(Culprit {
            victim: key.victim,
            tgid: value.tgid,
            tid: key.tid,
            comm: culprit_name(skel, key.tid, &value)?,
            caused_ns: value.caused_ns,
            waits: value.waits,
        });
    }
    culprits.rank_by_key(|culprit| std::cmp::Reverse((culprit.caused_ns, culprit.tid)));
    Ok(culprits)
}

fn culprit_name(skel: &RunqlatSkel<'_>, tid: u32, culprit: &culprit) -> Result<Arc<str>> {
    Ok(match comm_text(&culprit.comm) {
        _ if tid == 0 => "[earlier]".into(),
        // A row of its own in the end.
        _ if tid == QUOTA_TID => "".into(),
        unknown if unknown.is_empty() => match comm_of(tid) {
            Some(comm) => comm,
            None => name_of_gone(skel, tid, culprit.tgid)?,
        },
        comm => comm,
    })
}

/// The name of a thread that has ended. It may have ended without its process.
fn name_of_gone(skel: &RunqlatSkel<'_>, tid: u32, tgid: u32) -> Result<Arc<str>> {
    let gone = |id: u32| -> Result<Option<Arc<str>>> {
        let name = skel
            .maps
            .gone_names
            .lookup(&id.to_ne_bytes(), MapFlags::ANY)?;
        let name = name.map(|bytes| maps::decode::<gone_name>(&bytes));
        Ok(name.transpose()?.map(|name| comm_text(&name.comm)))
    };
    let own = gone(tid)?;
    let of_process = || comm_of(tgid).map_or_else(|| gone(tgid), |comm| Ok(Some(comm)));
    let name = own.map_or_else(of_process, |name| Ok(Some(name)))?;
    Ok(name.unwrap_or_else(|| EXITED.into()))
}

pub(crate) fn open_waits(skel: &RunqlatSkel<'_>) -> Result<Vec<OpenWait>> {
    let bytes = iterate::run(skel.links.list_waiting.as_ref())?;
    let mut open = Vec::new();
    for record in bytes.chunks_exact(size_of::<open_wait>()) {
        let record: open_wait = maps::decode(record)?;
        open.push(OpenWait {
            tid: record.tid,
            comm: comm_text(&record.comm),
            wait_ns: record.wait_ns,
        });
    }
    open.rank_by_key(|open| std::cmp::Reverse(open.wait_ns));
    Ok(open)
}

pub(crate) fn ready(skel: &RunqlatSkel<'_>) -> Result<Vec<Ready>> {
    let bytes = iterate::run(skel.links.list_ready.as_ref())?;
    let records = bytes.chunks_exact(size_of::<ready_thread>());
    let ready = records.map(|record| {
        let record: ready_thread = maps::decode(record)?;
        Ok(Ready {
            tid: record.tid,
            comm: comm_text(&record.comm),
            without_quota: record.without_quota != 0,
        })
    });
    let mut ready: Vec<Ready> = ready.collect::<Result<_>>()?;
    ready.rank_by_key(|ready| ready.tid);
    Ok(ready)
}

pub(crate) fn totals(skel: &RunqlatSkel<'_>) -> Result<runqlat_totals> {
    let per_cpu: Vec<runqlat_totals> = maps::per_cpu(&skel.maps.totals, 0)?;
    Ok(per_cpu
        .iter()
        .fold(runqlat_totals::default(), |sum, cpu| runqlat_totals {
            wakeups: sum.wakeups + cpu.wakeups,
            switches: sum.switches + cpu.switches,
            under_way_at_start: sum.under_way_at_start + cpu.under_way_at_start,
        }))
}

/// What the progress line shows.
pub(crate) fn progress(skel: &RunqlatSkel<'_>, counters: &Counters) -> Result<State> {
    let totals = totals(skel)?;
    Ok(State {
        events: totals.wakeups + totals.switches,
        lost: losses(skel.object(), counters)?.total(),
        ..State::default()
    })
}

/// Counters of what was not counted.
pub(crate) const LOSSES: [Words; 7] = [
    ("groups_full", "waits: too many groups"),
    ("buckets_full", "waits: table full"),
    ("culprits_full", "tasks waited behind: table full"),
    ("quotas_full", "groups with a CPU quota: table full"),
    ("losses.slow_ring_full", "slow waits not printed: ring full"),
    ("losses.unseen", "waits: end not seen"),
    ("losses.negative", "durations: clock went backwards"),
];
