//! Locks of programs in Python: which waits are for them, and who is in a `with` block of theirs.
//!
//! Locks are semaphores, or bytes: neither names anybody. The functions of the waiter tell that it waits for a lock, and the frames of all
//! threads who has taken it. That takes longer than the looks: more of them tell which of the waits have stood still until then.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use stacks::{StackTable, waits_for_python};

use super::claim::Claim;
use super::lock::{Identity, Wait, Waited};
use super::thread::{Stack, Thread, Threads};
use super::waits::Found;
use crate::lockstat::futex::{Class, python};

/// Time for looking at processes for an interpreter, and at frames of theirs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits of processes that run Python.
pub(super) struct Pythons {
    /// Threads that seem to wait for an event.
    pub(super) waiters: HashSet<usize>,
    /// Processes whose threads' waits ended before they were looked at.
    pub(super) restless: usize,
    /// Processes that there was no time to look at.
    pub(super) late: HashSet<u32>,
    started: Instant,
}

impl Pythons {
    /// Looks for them; `restless`: processes in which waits ended between the looks, `locked`: address spaces that are not to be read.
    pub(super) fn find(
        (found, restless): (&[Found], &HashSet<u32>),
        threads: &Threads,
        locked: &HashSet<u64>,
        table: &mut StackTable,
    ) -> Self {
        let mut pythons = Self {
            waiters: HashSet::new(),
            restless: 0,
            late: HashSet::new(),
            started: Instant::now(),
        };
        let mut known: HashMap<u32, bool> = HashMap::new();
        for found in found.iter().filter(|found| found.wait.is_unknown()) {
            let thread = &threads.all[found.wait.waiter];
            let tgid = thread.task.tgid;
            if thread.compat || locked.contains(&thread.space) {
                continue;
            }
            if !known.contains_key(&tgid) && pythons.are_late() {
                pythons.late.insert(tgid);
                continue;
            }
            let is_python = || table.runs_python(tgid);
            if *known.entry(tgid).or_insert_with(is_python) {
                pythons.waiters.insert(found.wait.waiter);
            }
        }
        for thread in &threads.all {
            let tgid = thread.task.tgid;
            let is_new = !known.contains_key(&tgid) && restless.contains(&tgid);
            if is_new && !locked.contains(&thread.space) && !pythons.are_late() {
                known.insert(tgid, table.runs_python(tgid));
            }
        }
        let is_python = |tgid: &&u32| known.get(*tgid) == Some(&true);
        pythons.restless = restless.iter().filter(is_python).count();
        pythons
    }

    fn are_late(&self) -> bool {
        self.started.elapsed() > PATIENCE
    }

    /// Says which of the waits are for locks of Python's, by the stacks of who waits.
    pub(super) fn name(
        &self,
        threads: &Threads,
        (waits, stacks): (&mut [Wait], &HashMap<usize, Stack>),
        table: &StackTable,
    ) {
        for wait in waits.iter_mut() {
            if self.waiters.contains(&wait.waiter)
                && wait.is_unknown()
                && let Some(stack) = stacks.get(&wait.waiter)
            {
                name(wait, &threads.all[wait.waiter], stack, table);
            }
        }
    }

    /// Threads that are in blocks of locks that are waited for, by the lock.
    pub(super) fn claims(
        &mut self,
        threads: &Threads,
        waits: &[Wait],
        table: &StackTable,
    ) -> HashMap<Identity, Claim> {
        self.started = Instant::now();
        let threads = &threads.all;
        let waits = || waits.iter().filter(|wait| is_of_python(wait));
        let wanted: HashSet<&Identity> = waits().map(|wait| &wait.lock).collect();
        let tgids: HashSet<u32> = waits().map(|wait| threads[wait.waiter].task.tgid).collect();
        let mut claims: HashMap<Identity, Claim> = HashMap::new();
        for (index, thread) in threads.iter().enumerate() {
            let (tgid, space) = (thread.task.tgid, thread.space);
            if thread.is_dead() || !tgids.contains(&tgid) {
                continue;
            }
            if self.are_late() {
                self.late.insert(tgid);
                continue;
            }
            let identity = |address: u64| Identity::Private { space, address };
            let is_wanted = |address: u64| wanted.contains(&identity(address));
            for within in
                table.python_locks_within(tgid, thread.registers.thread_pointer, is_wanted)
            {
                let claim = claims.entry(identity(within.address)).or_insert(Claim {
                    thread: index,
                    is_owner: within.is_owner,
                    is_only: true,
                });
                claim.is_only &= claim.thread == index;
            }
        }
        // Threads that were not looked at may be in the same blocks.
        claims.retain(|_, claim| !self.late.contains(&threads[claim.thread].task.tgid));
        claims
    }
}

fn is_of_python(wait: &Wait) -> bool {
    wait.kind == Waited::Python
}

/// Names a wait for a lock of Python's after the code that waits; others stay as they are.
fn name(wait: &mut Wait, thread: &Thread, stack: &Stack, table: &StackTable) {
    if waits_for_python(&stack.user) {
        return;
    }
    let verdict = python::judge(&stack.user);
    let Some(verdict) = verdict.filter(|verdict| verdict.meaning.class == Class::Named) else {
        return;
    };
    let caller = python::caller(&stack.user, true);
    wait.name = caller.map_or_else(String::new, |caller| format!("in {caller}"));
    wait.kind = Waited::Python;
    if verdict.meaning.is_own {
        let space = thread.space;
        wait.lock =
            match table.python_lock_waited_for(thread.task.tgid, thread.registers.thread_pointer) {
                Some(address) => Identity::Private { space, address },
                None => Identity::Hidden {
                    waiter: wait.waiter,
                    space,
                },
            };
    }
}
