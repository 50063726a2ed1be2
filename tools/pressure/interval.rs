//! One report's worth, as plain data.

use std::path::PathBuf;

use host::waits::Reason;
use profile::losses::Losses;
use profile::rank::Rank;
use session::quotas::UsedUp;

use crate::pressure::cgroups::CgroupPressure;
use crate::pressure::harvest::{ON_CPU, ON_IO, ON_MEMORY};
use crate::pressure::parties::Party;
use crate::pressure::psi::{Lost, Resource};
use crate::pressure::stacks::Stack;
use crate::pressure::waits::{Waiting, Waits};
use host::utilisation::Use;

/// Threads in wait at a time below which nobody would notice.
pub(crate) const LEAST_THREADS: f64 = 0.1;

/// Everything about one interval.
#[derive(Default)]
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// When it ended, seconds since 1970.
    pub(crate) ended_unix_s: u64,
    /// What was asked about; `None`: the machine.
    pub(crate) cgroup: Option<PathBuf>,
    /// The process asked about, the first if there are more.
    pub(crate) asked: Option<u32>,
    /// The tasks' time is of those asked for, not of all that PSI speaks of.
    pub(crate) is_filtered: bool,
    pub(crate) usage: Use,
    /// The kernel's own account, by `Resource`.
    pub(crate) psi: [Option<Lost>; 4],
    /// Time that all tasks lost, each counted for itself, by `ON_…`; of what was asked about.
    pub(crate) task_ns: [u64; 3],
    /// Of that, without CPU quota.
    pub(crate) throttled_ns: u64,
    /// Groups whose CPU quota was used up, of those that what was asked about is in.
    pub(crate) quotas: Vec<Quota>,
    /// Waits for what is no resource, of what was asked about.
    pub(crate) waits: Waits,
    /// Processes that lost something, of what was asked about.
    pub(crate) victims: Vec<Party>,
    /// Processes of the whole machine: who causes is rarely in the same cgroup.
    pub(crate) culprits: Vec<Party>,
    /// `--cgroups`.
    pub(crate) cgroups: Vec<CgroupPressure>,
    /// `-s`.
    pub(crate) stacks: Vec<Stack>,
    /// Failed requests; `None`: this kernel has no event for them.
    pub(crate) block_errors: Option<u64>,
    /// Since the start of the run.
    pub(crate) losses: Losses,
}

/// A group whose CPU quota was used up.
pub(crate) struct Quota {
    pub(crate) group: UsedUp,
    /// The process in it that lost most, of those that live.
    pub(crate) victim: Option<u32>,
    /// Its threads, of those asked for, waited for it no longer than that, ns.
    pub(crate) most_ns: u64,
}

/// Where the tables by `ON_…` have a resource.
pub(crate) fn index_of(resource: Resource) -> Option<usize> {
    match resource {
        Resource::Cpu => Some(ON_CPU),
        Resource::Memory => Some(ON_MEMORY),
        Resource::Io => Some(ON_IO),
        Resource::Irq => None,
    }
}

impl Interval {
    pub(crate) fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// PSI's share of the time in which at least one task (kind 0) or all of them (1) waited, percent.
    pub(crate) fn percent(&self, resource: Resource, kind: usize) -> Option<f64> {
        let lost = self.psi[resource as usize]?;
        let share = if kind == 0 { lost.some } else { lost.full };
        share.map(|share| share.percent())
    }

    /// Mean number of tasks that waited at a time, of what was asked about.
    pub(crate) fn tasks_at_a_time(&self, resource: Resource) -> Option<f64> {
        let task_ns = self.task_ns[index_of(resource)?];
        Some(task_ns as f64 / self.length_ns().max(1) as f64)
    }

    /// Looks whether the kernel's own account is of those who were asked about.
    pub(crate) fn has_psi(&self, resource: Resource) -> bool {
        self.psi[resource as usize].is_some() && !self.is_filtered
    }

    /// Pressure of a resource, percent: PSI's share, or where that says nothing of those asked about, of them the tasks that waited
    /// at a time. Interrupts have no other line than full.
    pub(crate) fn pressure(&self, resource: Resource) -> f64 {
        let kind = usize::from(resource == Resource::Irq);
        let pressure = match self.has_psi(resource) {
            true => self.percent(resource, kind),
            false => self.tasks_at_a_time(resource).map(|tasks| 100.0 * tasks),
        };
        pressure.unwrap_or(0.0)
    }

    /// Waits that no resource that is short explains, the largest first, if more threads wait so at a time than for any of those.
    /// A futex that is not known to be a lock may be a wait for work, and comes before no shortage.
    pub(crate) fn leading_waits(&self, pressed: &[Resource]) -> Vec<&Waiting> {
        let explains = |resource: &Resource, reason| match resource {
            Resource::Io => matches!(reason, Reason::BlockIo | Reason::PageFault),
            Resource::Memory => reason == Reason::PageFault,
            Resource::Cpu | Resource::Irq => false,
        };
        let lost = pressed.iter().map(|&resource| {
            let threads = self.tasks_at_a_time(resource).unwrap_or(0.0);
            threads.max(self.pressure(resource) / 100.0)
        });
        let most = lost.fold(0.0, f64::max);
        let rows = self.waits.rows.iter().filter(|row| {
            let is_known = pressed.is_empty() || row.is_lock || row.reason != Reason::Futex;
            let mut pressed = pressed.iter();
            is_known
                && row.at_a_time >= LEAST_THREADS
                && !pressed.any(|one| explains(one, row.reason))
        });
        let rows: Vec<&Waiting> = rows.collect();
        match rows.first() {
            Some(first) if first.at_a_time > most => rows,
            _ => Vec::new(),
        }
    }

    /// The group whose quota is what tasks waited for, if that is most of the time that they lost waiting for a CPU.
    pub(crate) fn quota_at_fault(&self) -> Option<&Quota> {
        let is_it = self.throttled_ns > 0 && self.throttled_ns >= self.task_ns[ON_CPU] / 2;
        self.quotas.first().filter(|_| is_it)
    }

    /// The process with most threads of which nobody knows whether they wait for work, if those are more than all others that wait.
    pub(crate) fn undecided(&self) -> Option<&Waiting> {
        let rows = self.waits.rows.first();
        let most = rows.map_or(LEAST_THREADS, |row| row.at_a_time.max(LEAST_THREADS));
        let first = self.waits.undecided.first();
        first.filter(|row| row.at_a_time >= most)
    }

    /// Processes whose threads wait for locks, the most first, if that is worth a word.
    pub(crate) fn locks(&self) -> Vec<&Waiting> {
        let rows = self.waits.rows.iter();
        rows.filter(|row| row.is_lock && row.at_a_time >= LEAST_THREADS)
            .collect()
    }

    /// What is short, worst first: at least this share of the time, percent.
    pub(crate) fn pressed(&self, least_percent: f64) -> Vec<Resource> {
        let mut pressed: Vec<Resource> = Resource::ALL
            .into_iter()
            .filter(|resource| self.pressure(*resource) >= least_percent)
            .collect();
        pressed.rank_by(|a, b| self.pressure(*b).total_cmp(&self.pressure(*a)));
        pressed
    }
}
