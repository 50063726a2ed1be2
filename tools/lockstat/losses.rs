//! What was seen and not counted.

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{futex_losses, lock_losses};
use budget::cost::Cost;
use loader::maps;
use loader::section;
use profile::losses::Losses;
use stacks::StackTable;

/// Beginnings of waits for kernel locks, and ends of those for programs', seen since the start.
pub(crate) fn events(skel: &LockstatSkel<'_>) -> Result<u64> {
    let per_cpu: Vec<u64> = maps::per_cpu(&skel.maps.lock_events, 0)?;
    let futexes = section(skel.maps.bss_data.as_deref(), ".bss")?.futex_events;
    Ok(per_cpu.iter().sum::<u64>() + futexes)
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

/// Every counter. `recursions`: events in the middle of our own programs, which the kernel kept from them.
pub(crate) fn count(
    skel: &LockstatSkel<'_>,
    stacks: &StackTable,
    recursions: u64,
) -> Result<Losses> {
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    let mut losses = Losses::default();
    count_tables(&mut losses, &bss.lock_losses);
    losses.count("chains_full", "chained waits: table full", bss.chains_full);
    let kernel = &bss.kernel_lock_losses;
    losses.count("unbegun", "waits: beginning not seen", kernel.unbegun);
    losses.count("unended", "waits: end not seen", kernel.unended);
    let nested = kernel.nested + recursions;
    losses.count("nested", "events during our own work", nested);
    losses.count("unwalked", "stacks: scratch in use", kernel.unwalked);
    count_futexes(&mut losses, &bss.futex_losses);
    losses.count("members_lost", "threads: no memory", bss.members_lost);
    losses.count(
        "targets_full",
        "child processes: table full",
        bss.targets_full,
    );
    let walks = &bss.stack_losses;
    losses.count("stack_ring_full", "stacks: ring full", walks.ring_full);
    losses.count("stack_table_full", "stacks: table full", walks.table_full);
    losses.count("stack_unwalked", "stacks not walked", walks.unwalked);
    losses.count(
        "stack_truncated",
        "stacks cut at 127 frames",
        walks.truncated,
    );
    losses.count(
        "stacks_left_out",
        "stacks not walked, to keep the budget",
        bss.stacks_left_out,
    );
    stacks.count_losses(&mut losses);
    Ok(losses)
}

fn count_tables(losses: &mut Losses, tables: &lock_losses) {
    losses.time(
        "locks_full",
        "waits: table of locks full",
        tables.locks_full,
        tables.locks_full_ns,
    );
    losses.count(
        "buckets_full",
        "waits not in histograms: table full",
        tables.buckets_full,
    );
    losses.time(
        "waiters_full",
        "waits without waiter: table full",
        tables.waiters_full,
        tables.waiters_full_ns,
    );
    losses.count(
        "holders_full",
        "waits without holder: table full",
        tables.holders_full,
    );
    losses.count(
        "names_full",
        "waits for kernel locks without names: table full",
        tables.names_full,
    );
    losses.count(
        "holders_unwalked",
        "holders' stacks: scratch in use",
        tables.holders_unwalked,
    );
    losses.count(
        "maxima_raced",
        "maxima that may be too small: two CPUs at once",
        tables.maxima_raced,
    );
    losses.count("negative", "times running backwards", tables.negative);
}

fn count_futexes(losses: &mut Losses, futexes: &futex_losses) {
    losses.count("futex_unseen", "futex waits not seen", futexes.unseen);
    losses.count(
        "futex_undescribed",
        "locks of programs: table full",
        futexes.undescribed,
    );
    losses.count(
        "futex_unwalked",
        "stacks of futex waits: scratch in use",
        futexes.unwalked,
    );
}
