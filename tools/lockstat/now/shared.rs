//! Whether the number of a thread, in memory that processes share, means the same thread to all of them.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use symbols::memory::{self, SharedRange};

use super::thread::{Thread, Threads};

/// What is shared by processes, each looked at once, when it first matters.
pub(crate) struct SharedMemory<'a> {
    threads: &'a Threads,
    /// Address spaces that cannot be looked at.
    locked: &'a HashSet<u64>,
    /// By address space; `None`: nobody knows.
    ranges: RefCell<HashMap<u64, Option<Rc<[SharedRange]>>>>,
}

impl<'a> SharedMemory<'a> {
    pub(crate) fn new(threads: &'a Threads, locked: &'a HashSet<u64>) -> Self {
        Self {
            threads,
            locked,
            ranges: RefCell::default(),
        }
    }

    /// Whether all who can write to `address` of the waiter count threads as it does: in the same PID namespace. Anyone else's number
    /// would mean nobody there, or somebody else.
    pub(crate) fn has_own_numbers(&self, waiter: &Thread, address: u64) -> bool {
        let others = || {
            let all = self.threads.all.iter();
            all.filter(|t| t.space != 0 && t.pid_namespace != waiter.pid_namespace)
        };
        if !self.threads.has_outsiders && others().next().is_none() {
            return true;
        }
        let Some(own) = self.ranges(waiter) else {
            return false;
        };
        // A futex in memory of the process's own, though the call does not say so.
        let Some(range) = own.iter().find(|r| (r.start..r.end).contains(&address)) else {
            return true;
        };
        let shares = |thread: &Thread| {
            let ranges = self.ranges(thread);
            ranges.is_none_or(|ranges| ranges.iter().any(|r| r.file == range.file))
        };
        range.file.is_some() && !self.threads.has_outsiders && !others().any(shares)
    }

    fn ranges(&self, thread: &Thread) -> Option<Rc<[SharedRange]>> {
        let mut known = self.ranges.borrow_mut();
        let read = || {
            let is_locked = self.locked.contains(&thread.space);
            let read = (!is_locked).then(|| memory::shared(thread.task.tgid).ok());
            read.flatten().map(Rc::from)
        };
        known.entry(thread.space).or_insert_with(read).clone()
    }
}
