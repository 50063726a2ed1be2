//! Locks of programs in Python: which waits are for them, and who is in a `with` block of theirs.
//!
//! The locks are semaphores, or bytes: neither names anybody. The functions of the waiter tell that it waits for a lock, and the frames of all
//! threads who has taken it.

use std::collections::{HashMap, HashSet};

use stacks::StackTable;

use super::lock::{Holder, Identity, Wait, Waited};
use super::snapshot::Snapshot;
use super::thread::{Thread, Threads};
use super::waits::Found;
use crate::lockstat::futex::{Class, python};

/// Threads of processes that run Python that seem to wait for an event.
pub(super) fn waiters(
    found: &[Found],
    threads: &Threads,
    locked: &HashSet<u64>,
    table: &mut StackTable,
) -> HashSet<usize> {
    let mut known: HashMap<u32, bool> = HashMap::new();
    let mut is_python = |found: &&Found| {
        let thread = &threads.all[found.wait.waiter];
        let may_be = is_unknown(&found.wait) && !thread.compat && !locked.contains(&thread.space);
        let tgid = thread.task.tgid;
        may_be && *known.entry(tgid).or_insert_with(|| table.runs_python(tgid))
    };
    let of_python = found.iter().filter(|found| is_python(found));
    of_python.map(|found| found.wait.waiter).collect()
}

fn is_unknown(wait: &Wait) -> bool {
    wait.private && wait.kind == Waited::Program(Class::Unknown)
}

/// Says of the waits of these threads which are for locks of Python's, and who has those; returns the ones who have.
pub(super) fn judge(
    snapshot: &mut Snapshot,
    waiters: &HashSet<usize>,
    table: &StackTable,
) -> HashSet<usize> {
    let mut tgids = HashSet::new();
    for wait in &mut snapshot.waits {
        if waiters.contains(&wait.waiter)
            && is_unknown(wait)
            && let Some(stack) = snapshot.stacks.get(&wait.waiter)
            && let Some(verdict) = python::judge(&stack.user)
            && verdict.meaning.class == Class::Named
        {
            let thread = &snapshot.threads.all[wait.waiter];
            let caller = python::caller(&stack.user, true);
            wait.name = caller.map_or_else(String::new, |caller| format!("in {caller}"));
            wait.kind = Waited::Python;
            if verdict.meaning.is_own {
                wait.lock = identity(wait.waiter, thread, table);
            }
            tgids.insert(thread.task.tgid);
        }
    }
    let holders = holders(&snapshot.threads, &tgids, table);
    let mut found = HashSet::new();
    let of_python = |wait: &&mut Wait| wait.kind == Waited::Python;
    for wait in snapshot.waits.iter_mut().filter(of_python) {
        if let Some(holder) = holders.get(&wait.lock) {
            wait.holder = Holder::Thread(*holder);
            found.insert(*holder);
        }
    }
    found
}

/// The lock that a thread waits for on a futex of its own.
fn identity(waiter: usize, thread: &Thread, table: &StackTable) -> Identity {
    let space = thread.space;
    match table.python_lock_waited_for(thread.task.tgid, thread.registers) {
        Some(address) => Identity::Private { space, address },
        None => Identity::Hidden { waiter, space },
    }
}

/// Threads of these processes that have locks, by the lock.
fn holders(
    threads: &Threads,
    tgids: &HashSet<u32>,
    table: &StackTable,
) -> HashMap<Identity, usize> {
    let mut holders = HashMap::new();
    for (index, thread) in threads.all.iter().enumerate() {
        if thread.is_dead() || !tgids.contains(&thread.task.tgid) {
            continue;
        }
        let space = thread.space;
        for address in table.python_locks_within(thread.task.tgid, thread.registers) {
            holders.insert(Identity::Private { space, address }, index);
        }
    }
    holders
}
