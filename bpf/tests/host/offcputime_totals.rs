//! Sums of offcputime's programs.

use crate::host::Host;

/// `struct offcputime_totals` of offcpu_phases.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Totals {
    pub(crate) oncpu_ns: u64,
    pub(crate) runqueue_ns: u64,
    pub(crate) blocked_ns: u64,
    pub(crate) unseen_ns: u64,
    pub(crate) lifetime_ns: u64,
    pub(crate) threads_exited: u64,
    /// Not compared.
    events: u64,
    pub(crate) filtered: u64,
    pub(crate) filtered_ns: u64,
    /// Nobody asks for their lengths.
    rows: u64,
}

impl Totals {
    pub(crate) fn told(host: &Host) -> Self {
        let words = host.sums::<_, 10>("totals", &0_u32);
        // SAFETY: it consists of as many words.
        let told = unsafe { std::mem::transmute::<[u64; 10], Self>(words) };
        Self { events: 0, ..told }
    }

    /// Time in all phases.
    pub(crate) fn all_ns(&self) -> u64 {
        self.oncpu_ns + self.runqueue_ns + self.blocked_ns + self.unseen_ns
    }
}

/// `struct offcputime_losses` of offcpu_phases.bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Losses {
    pub(crate) rows_full: u64,
    pub(crate) rows_full_ns: u64,
    pub(crate) unreported: u64,
    pub(crate) unreported_ns: u64,
    pub(crate) out_of_order: u64,
    pub(crate) negative: u64,
    /// Details that nobody asks for.
    pub(crate) details_full: [u64; 2],
}

impl Losses {
    pub(crate) fn told(host: &Host) -> Self {
        host.read("losses")
    }
}
