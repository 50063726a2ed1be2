//! Who called the lock function.

use std::sync::Arc;

use profile::frame::Frame;
use trace::stacks::StackTable;

use crate::row::LockRow;

/// First function outside the locks' own code on the heaviest stack that was walked; `first_walked` is the stack that the
/// lock was named by.
pub(crate) fn first(row: &LockRow, first_walked: u64, stacks: &mut StackTable) -> Option<Arc<str>> {
    let heaviest = row.waiters.iter().map(|waiter| waiter.kernel);
    let id = heaviest.chain([first_walked]).find(|stack| *stack != 0)?;
    outside(&stacks.kernel_names(id))
}

/// `frames` are root first.
pub(crate) fn outside(frames: &[Frame]) -> Option<Arc<str>> {
    let mut leaf_first = frames.iter().rev();
    let caller = leaf_first.find(|frame| !is_lock_function(&frame.name))?;
    Some(caller.name.clone())
}

/// Beginnings of the names of functions that take locks, without leading underscores.
const PREFIXES: [&str; 25] = [
    "raw_spin_lock",
    "raw_read_lock",
    "raw_write_lock",
    "spin_lock",
    "read_lock",
    "write_lock",
    "queued_spin_",
    "queued_read_",
    "queued_write_",
    "native_queued_",
    "pv_queued_",
    "resilient_",
    "mutex_",
    "ww_mutex_",
    "down_",
    "rwsem_",
    "percpu_down_",
    "percpu_rwsem_",
    "rt_mutex_",
    "rt_spin_",
    "rtlock_",
    "rwbase_",
    "rt_down_",
    "lock_mm_and_find_vma",
    "mmap_",
];

fn is_lock_function(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    name == "down" || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_functions_are_told_from_their_callers() {
        for lock in [
            "_raw_spin_lock_irqsave",
            "__pv_queued_spin_lock_slowpath",
            "native_queued_spin_lock_slowpath.part.0",
            "rwsem_down_write_slowpath",
            "__mutex_lock.constprop.0",
            "down",
            "__down_common",
            "percpu_rwsem_wait",
        ] {
            assert!(is_lock_function(lock), "{lock}");
        }
        for caller in ["downgrade", "anon_pipe_read", "__x64_sys_munmap", "do_mmap"] {
            assert!(!is_lock_function(caller), "{caller}");
        }
    }
}
