//! The global locks of Python's interpreters, by process: where they lie.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use python::{NONE, Runtime, Within};

use super::outside;
use super::process::Pages;
use crate::StackTable;

/// Locks of a process that the BPF side is told of: interpreters may have one each from 3.12 on.
pub const LOCKS_TOLD: usize = 4;
/// Locks of a process that are known.
const MOST_LOCKS: usize = 256;
/// Processes whose locks are known.
const MOST_PROCESSES: usize = 4096;
/// Time between looks for new ones.
const AGAIN: Duration = Duration::from_secs(1);

/// The global locks of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonLocks {
    /// The process.
    pub tgid: u32,
    /// Tells its address space from the one before exec: [`host::procs::stack_start`].
    pub space: u64,
    /// Addresses of the first ones, of [`PythonLocks::size`] bytes each; 0: there are no more.
    pub at: [u64; LOCKS_TOLD],
    /// Bytes of one.
    pub size: u64,
    /// Bytes from a thread's state to its number in the innermost PID namespace; 0: it has none.
    pub tid_at: u32,
}

struct Known {
    space: u64,
    /// Addresses, and bytes of each.
    at: Vec<u64>,
    size: u64,
    tid_at: u32,
    looked: Instant,
}

/// Locks of processes, the gone ones among them: their waits are reported later.
#[derive(Default)]
pub(super) struct Locks {
    known: HashMap<u32, Known>,
    /// Processes whose locks are news.
    news: Vec<u32>,
}

impl Locks {
    /// Takes in the locks of a process that runs.
    pub(super) fn learn(&mut self, (tgid, space): (u32, u64), runtime: &Runtime) {
        if self.known.len() >= MOST_PROCESSES && !self.known.contains_key(&tgid) {
            return;
        }
        let gils = runtime.gils(&Pages(tgid));
        let native = runtime.layout.native_thread_id;
        let found = Known {
            space,
            at: gils
                .iter()
                .take(MOST_LOCKS)
                .map(|gil| gil.address)
                .collect(),
            size: gils.first().map_or(0, |gil| gil.size),
            tid_at: if native == NONE { 0 } else { native.into() },
            looked: Instant::now(),
        };
        let same_space = |known: &&mut Known| known.space == space;
        if let Some(known) = self.known.get_mut(&tgid).filter(same_space) {
            known.looked = found.looked;
            // It ends, or its memory cannot be read.
            if found.at.is_empty() || found.at == known.at {
                return;
            }
        }
        if !found.at.is_empty() {
            self.known.insert(tgid, found);
            self.news.push(tgid);
        }
    }

    fn find(&self, tgid: u32, address: u64) -> Option<u64> {
        let known = self.known.get(&tgid)?;
        let holds = |start: &&u64| (**start..start.saturating_add(known.size)).contains(&address);
        known.at.iter().find(holds).copied()
    }

    fn is_due(&self, tgid: u32) -> bool {
        let known = self.known.get(&tgid);
        known.is_some_and(|known| known.looked.elapsed() >= AGAIN)
    }

    fn take_news(&mut self) -> Vec<PythonLocks> {
        let told = |tgid| {
            let known = self.known.get(&tgid)?;
            let mut at = [0; LOCKS_TOLD];
            at.iter_mut()
                .zip(&known.at)
                .for_each(|(told, one)| *told = *one);
            Some(PythonLocks {
                tgid,
                space: known.space,
                at,
                size: known.size,
                tid_at: known.tid_at,
            })
        };
        let news = std::mem::take(&mut self.news);
        news.into_iter().filter_map(told).collect()
    }
}

impl StackTable {
    /// Beginning of the global lock of Python that an address of a process lies in; `None`: it lies in none.
    pub fn python_lock(&mut self, tgid: u32, address: u64) -> Option<u64> {
        let pythons = &mut self.unwinder.borrow_mut().pythons;
        if pythons.locks.find(tgid, address).is_none()
            && pythons.locks.is_due(tgid)
            && let Some((space, runtime)) = pythons.runtime(tgid)
        {
            pythons.locks.learn((tgid, space), &runtime);
        }
        pythons.locks.find(tgid, address)
    }

    /// Looks whether a process runs Python; if it does, its unwind tables are wanted, too.
    pub fn runs_python(&mut self, tgid: u32) -> bool {
        self.symbolizer.snapshot([tgid]);
        let mut unwinder = self.unwinder.borrow_mut();
        unwinder.pythons.ensure(tgid, &mut self.symbolizer);
        let is_so = unwinder.pythons.runtime(tgid).is_some();
        if is_so {
            unwinder.follow(tgid, &mut self.symbolizer);
        }
        is_so
    }

    /// Locks of Python in whose `with` blocks a thread of a process is, by the address that its own data lies around, as far as `is_wanted`
    /// says so of their addresses: it has taken them. The futex is there, but from 3.14 on ([`StackTable::python_lock_waited_for`]). A lock
    /// that was taken otherwise is not among them.
    pub fn python_locks_within(
        &self,
        tgid: u32,
        thread_pointer: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Vec<Within> {
        let thread = self.python_thread(tgid, thread_pointer);
        thread.map_or_else(Vec::new, |(runtime, state)| {
            runtime.locks_within(&Pages(tgid), state, is_wanted)
        })
    }

    /// Address of the lock of Python that a thread of a process waits for, where the futex is one of the waiter's own. `None`: it is the
    /// futex, or nobody knows.
    pub fn python_lock_waited_for(&self, tgid: u32, thread_pointer: u64) -> Option<u64> {
        let (runtime, state) = self.python_thread(tgid, thread_pointer)?;
        runtime.lock_waited_for(&Pages(tgid), state)
    }

    /// The interpreter of a process, and the state of a thread.
    fn python_thread(&self, tgid: u32, thread_pointer: u64) -> Option<(Arc<Runtime>, u64)> {
        let (_, runtime) = self.unwinder.borrow().pythons.runtime(tgid)?;
        let state = outside::state(&Pages(tgid), &runtime, thread_pointer)?;
        Some((runtime, state))
    }

    /// Global locks of Python that were found since the last call.
    pub fn take_python_locks(&mut self) -> Vec<PythonLocks> {
        self.unwinder.borrow_mut().pythons.locks.take_news()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(at: &[u64]) -> Known {
        Known {
            space: 7,
            at: at.into(),
            size: 208,
            tid_at: 160,
            looked: Instant::now(),
        }
    }

    #[test]
    fn every_byte_of_a_lock_leads_to_its_beginning() {
        let mut locks = Locks::default();
        locks.known.insert(5, known(&[0x1000, 0x4000]));
        for (address, start) in [
            (0x0fff, None),
            (0x1000, Some(0x1000)),
            (0x10cf, Some(0x1000)),
            (0x10d0, None),
            (0x4024, Some(0x4000)),
        ] {
            assert_eq!(locks.find(5, address), start, "{address:#x}");
        }
        assert_eq!(locks.find(6, 0x1000), None);
    }

    #[test]
    fn news_are_told_once() {
        let mut locks = Locks::default();
        locks.known.insert(5, known(&[1, 2, 3, 4, 5]));
        locks.news.push(5);
        let told = locks.take_news();
        assert_eq!((told.len(), told[0].at), (1, [1, 2, 3, 4]));
        assert_eq!((told[0].space, told[0].tid_at), (7, 160));
        assert!(locks.take_news().is_empty());
    }
}
