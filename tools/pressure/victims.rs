//! Whose losses are shown: the machine's pressure is everybody's, so all tasks are followed and chosen from here.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use host::clock::monotonic_ns;
use host::task::{comm_of, threads_of};
use session::cgroups;
use session::glob::Glob;

use crate::pressure::task::TaskStock;

/// Which tasks are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Empty: any.
    pub(crate) tgids: Vec<u32>,
    /// Empty: any.
    pub(crate) tids: Vec<u32>,
    pub(crate) comm: Option<Glob>,
    /// Kernel threads only (true), or user threads only.
    pub(crate) kernel_threads: Option<bool>,
    /// This directory and what is below.
    pub(crate) cgroup: Option<PathBuf>,
    /// Of that cgroup, as far as seen.
    pub(crate) cgroup_ids: HashSet<u64>,
}

impl Filter {
    /// cgroups come and go: to be called once per interval. Those that were removed stay known.
    pub(crate) fn follow_cgroups(&mut self) {
        if let Some(root) = &self.cgroup {
            self.cgroup_ids.extend(cgroups::by_id(root).into_keys());
        }
    }

    /// By what is known of a stack's task.
    pub(crate) fn names(&self, tgid: u32, tid: u32, comm: &str) -> bool {
        (self.tgids.is_empty() || self.tgids.contains(&tgid))
            && (self.tids.is_empty() || self.tids.contains(&tid))
            && self
                .comm
                .as_ref()
                .is_none_or(|glob| glob.matches(comm.as_bytes()))
    }

    /// Looks whether it leaves anything out.
    pub(crate) fn is_choice(&self) -> bool {
        self.is_finer_than_psi() || self.cgroup.is_some()
    }

    /// Looks whether it leaves out more than all but a cgroup, whose pressure the kernel knows.
    pub(crate) fn is_finer_than_psi(&self) -> bool {
        !self.tgids.is_empty()
            || !self.tids.is_empty()
            || self.comm.is_some()
            || self.kernel_threads.is_some()
    }

    /// By what `/proc` says of a user thread.
    pub(crate) fn chooses(&self, tgid: u32, tid: u32) -> bool {
        let comm = self.comm.as_ref().and_then(|_| comm_of(tid));
        self.kernel_threads != Some(true)
            && self.names(tgid, tid, comm.as_deref().unwrap_or_default())
            && self
                .cgroup
                .as_ref()
                .is_none_or(|directory| cgroups::holds(directory, tid))
    }

    /// Number of a process's user threads that it chooses, by what `/proc` says. Past that time, ns, each costs too many reads, and no
    /// more is counted than one, where one may be chosen.
    pub(crate) fn count_of(&self, tgid: u32, until_ns: u64) -> u64 {
        let is_in_time = || monotonic_ns() < until_ns;
        let chooses = |tid: &u32| self.chooses(tgid, *tid);
        if !is_in_time() {
            return u64::from(self.may_choose_in(tgid));
        }
        if !self.tids.is_empty() {
            let is_its = |tid: &&u32| Path::new(&format!("/proc/{tgid}/task/{tid}")).exists();
            let chosen = self.tids.iter().filter(|tid| chooses(tid));
            return chosen.filter(is_its).count() as u64;
        }
        if self.comm.is_none() && self.cgroup.is_none() {
            return if chooses(&tgid) { number_of(tgid) } else { 0 };
        }
        let threads = threads_of(tgid).take_while(|_| is_in_time());
        threads.filter(chooses).count() as u64
    }

    /// Looks whether a thread of a process may be chosen, whatever their names are.
    fn may_choose_in(&self, tgid: u32) -> bool {
        let is_its = |tid: &u32| Path::new(&format!("/proc/{tgid}/task/{tid}")).exists();
        self.kernel_threads != Some(true)
            && (self.tgids.is_empty() || self.tgids.contains(&tgid))
            && (self.tids.is_empty() || self.tids.iter().any(is_its))
            && self
                .cgroup
                .as_ref()
                .is_none_or(|directory| cgroups::holds(directory, tgid))
    }

    pub(crate) fn is_wanted(&self, task: &TaskStock) -> bool {
        if let Some(many) = task.many {
            return many.is_wanted;
        }
        self.names(task.tgid, task.tid, &task.comm)
            && self
                .kernel_threads
                .is_none_or(|wanted| wanted == task.is_kernel_thread)
            && (self.cgroup.is_none() || self.cgroup_ids.contains(&task.cgroup_id))
    }
}

/// A process's number of threads.
fn number_of(tgid: u32) -> u64 {
    let links = fs::metadata(format!("/proc/{tgid}/task")).map_or(0, |task| task.nlink());
    // The directory itself has two.
    links.saturating_sub(2)
}
