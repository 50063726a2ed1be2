//! What was seen and not counted.

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use budget::cost::Cost;
use loader::counters::{Counters, Words};
use loader::{maps, section};
use profile::losses::Losses;
use stacks::StackTable;

/// Beginnings of waits for kernel locks, and ends of those for programs', seen since the start.
pub(crate) fn events(skel: &LockstatSkel<'_>) -> Result<u64> {
    let per_cpu: Vec<u64> = maps::per_cpu(&skel.maps.lock_events, 0)?;
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    Ok(per_cpu.iter().sum::<u64>() + bss.futex_events + bss.sleep_events)
}

/// What a run was worth and what it took.
pub(crate) struct Ledger {
    /// As [`begun_before`] gives them.
    pub(crate) begun_before: u64,
    pub(crate) losses: Losses,
    pub(crate) cost: Cost,
}

/// Waits for kernel locks that were under way when tracing began, and have ended: their length is not known.
pub(super) fn begun_before(skel: &LockstatSkel<'_>) -> Result<u64> {
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    Ok(bss.begun_before)
}

/// Counters of what was not counted.
pub(crate) const LOSSES: [Words; 19] = [
    ("lock_losses.locks_full", "waits: table of locks full"),
    (
        "lock_losses.buckets_full",
        "waits not in histograms: table full",
    ),
    (
        "lock_losses.waiters_full",
        "waits without waiter: table full",
    ),
    (
        "lock_losses.holders_full",
        "waits without holder: table full",
    ),
    (
        "lock_losses.names_full",
        "waits for kernel locks without names: table full",
    ),
    (
        "lock_losses.holders_unwalked",
        "holders' stacks: per-CPU buffer in use",
    ),
    (
        "lock_losses.maxima_raced",
        "maxima: perhaps too low, two CPUs at once",
    ),
    ("lock_losses.negative", "durations: clock went backwards"),
    ("kernel_lock_losses.unbegun", "waits: beginning not seen"),
    ("kernel_lock_losses.unended", "waits: end not seen"),
    (
        "kernel_lock_losses.nested",
        "events: our BPF program ran on that CPU",
    ),
    (
        "kernel_lock_losses.unwalked",
        "stacks: per-CPU buffer in use",
    ),
    (
        "futex_losses.unseen as futex_unseen",
        "futex waits not seen",
    ),
    (
        "futex_losses.undescribed as futex_undescribed",
        "locks of programs: table full",
    ),
    (
        "futex_losses.unwalked as futex_unwalked",
        "stacks of futex waits: per-CPU buffer in use",
    ),
    (
        "backend_losses.unread as wait_events_unread",
        "PostgreSQL's wait events: memory not there",
    ),
    (
        "sleep_losses.unwalked as sleep_unwalked",
        "stacks of waits in other calls: per-CPU buffer in use",
    ),
    (
        "sleep_losses.unended as sleep_unended",
        "waits in other calls: end not seen",
    ),
    (
        "lock_files_full as files_full",
        "waits for locks of files without paths: table full",
    ),
];

/// Every counter but that of events which the kernel kept from our programs: asking for these takes a call a program.
pub(crate) fn count(counters: &Counters, stacks: &StackTable) -> Result<Losses> {
    let mut losses = Losses::default();
    counters.count(&mut losses)?;
    stacks.count_losses(&mut losses);
    Ok(losses)
}
