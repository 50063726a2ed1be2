//! Processes that the targets fork while their locks are probed.
//!
//! They inherit the breakpoints. Single probes go with a child's first trap. Of probes that are put in place at once the kernel only
//! asks whose they are: it runs no program for a child, so that its traps are not counted, and leaves the breakpoint. But when
//! any probe of a function is taken away, all breakpoints there go that no probe is for (register_for_each_vma).

use anyhow::{Context, Result};
use bpf::lockstat_hold::LockstatHoldSkel;
use trace::loader::section;
use trace::window::monotonic_ns;

use super::probes::{self, Method, Probed};

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forked {
    pub(crate) processes: u64,
    /// The longest that one may have had breakpoints, ns; 0: not beyond its first trap.
    pub(crate) freed_within_ns: u64,
}

/// Watches for them, and frees them.
pub(crate) struct Children<'a> {
    libraries: &'a [Probed],
    method: Method,
    before: u64,
    /// Nothing that was forked until then has breakpoints.
    free_ns: u64,
    forked: Forked,
}

impl<'a> Children<'a> {
    /// Of targets that are about to be probed.
    pub(crate) fn since_now(
        skel: &LockstatHoldSkel<'_>,
        libraries: &'a [Probed],
        method: Method,
    ) -> Result<Self> {
        Ok(Self {
            libraries,
            method,
            before: forks(skel)?,
            free_ns: monotonic_ns(),
            forked: Forked::default(),
        })
    }

    /// Frees those that are new.
    pub(crate) fn look(&mut self, skel: &LockstatHoldSkel<'_>) -> Result<()> {
        let now_ns = monotonic_ns();
        let processes = forks(skel)? - self.before;
        if processes > self.forked.processes {
            self.forked.processes = processes;
            if self.method == Method::Multi {
                probes::sweep(skel, self.libraries)
                    .context("take probes out of forked processes")?;
                self.note_freed(monotonic_ns());
            }
        }
        // What is forked from here on may be behind the sweep.
        self.free_ns = now_ns;
        Ok(())
    }

    /// When taking all probes away has freed the last ones.
    pub(crate) fn end(mut self, skel: &LockstatHoldSkel<'_>) -> Result<Forked> {
        let processes = forks(skel)? - self.before;
        if processes > self.forked.processes && self.method == Method::Multi {
            self.note_freed(monotonic_ns());
        }
        self.forked.processes = processes;
        Ok(self.forked)
    }

    fn note_freed(&mut self, now_ns: u64) {
        let within_ns = now_ns.saturating_sub(self.free_ns);
        self.forked.freed_within_ns = self.forked.freed_within_ns.max(within_ns);
    }
}

fn forks(skel: &LockstatHoldSkel<'_>) -> Result<u64> {
    Ok(section(skel.maps.bss_data.as_deref(), ".bss")?.forks)
}
