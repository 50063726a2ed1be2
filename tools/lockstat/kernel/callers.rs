//! Who called the lock function.

use std::collections::HashMap;
use std::sync::Arc;

use profile::frame::Frame;
use stacks::StackTable;
use symbols::interrupt_part;

use crate::lockstat::row::LockRow;

/// Callers by stack.
#[derive(Default)]
pub(crate) struct Callers(HashMap<u64, Caller>);

#[derive(Clone, Default)]
struct Caller {
    name: Option<Arc<str>>,
    in_interrupt: bool,
}

impl Callers {
    /// Who called for each waiter and, by the heaviest stack that was walked, for the lock; `first_walked` is the first of
    /// all.
    pub(crate) fn find(&mut self, row: &mut LockRow, first_walked: u64, stacks: &mut StackTable) {
        for waiter in &mut row.waiters {
            let caller = self.of(waiter.kernel, stacks);
            waiter.caller.clone_from(&caller.name);
            waiter.in_interrupt = caller.in_interrupt;
        }
        let known = row.waiters.iter().find_map(|waiter| waiter.caller.clone());
        row.first_caller = known.or_else(|| self.of(first_walked, stacks).name.clone());
    }

    fn of(&mut self, stack: u64, stacks: &mut StackTable) -> &Caller {
        self.0.entry(stack).or_insert_with(|| {
            let frames = stacks.kernel_names(stack);
            Caller {
                name: outside(&frames),
                in_interrupt: interrupt_part(&frames).is_some(),
            }
        })
    }
}

/// `frames` are root first.
pub(crate) fn outside(frames: &[Frame]) -> Option<Arc<str>> {
    let mut leaf_first = frames.iter().rev();
    let caller = leaf_first.find(|frame| !is_lock_function(&frame.name))?;
    Some(caller.name.clone())
}

/// Beginnings of the names of functions that take locks, without leading underscores.
const PREFIXES: &[&str] = &[
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
    "mmap_read_",
    "mmap_write_",
    "lock_mm_and_find_vma",
    "lock_vma_under_rcu",
    "vma_start_",
    "folio_lruvec_",
    "raw_spin_rq_",
    "task_rq_lock",
    "lock_timer_base",
    "lock_hrtimer_base",
    "get_locked_pte",
    "pte_offset_map_",
    "lock_task_sighand",
    "lock_rename",
    "lock_sock",
    "inode_lock",
    "pipe_lock",
    "lockref_",
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
