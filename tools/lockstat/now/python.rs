//! Locks of programs in Python: which waits are for them, and who is in a `with` block of theirs.
//!
//! Locks are semaphores, or bytes: neither names anybody. The functions of the waiter tell that it waits for a lock, and the frames of all
//! threads who has taken it. That takes longer than the looks: more of them tell which of the waits have stood still until then.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use stacks::{StackTable, waits_for_python};

use super::lock::{Holder, Identity, Wait, Waited};
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
    restless: usize,
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

    /// Says which of the waits are for locks of Python's, by the stacks of who waits, and who has those. `look`, at all threads, is taken
    /// when the stacks have been read, and when the frames of all threads have: a wait that ended before the first is dropped, and one
    /// that ended before the second has no known holder.
    pub(super) fn judge(
        &mut self,
        threads: &Threads,
        (waits, stacks): (&mut Vec<Wait>, &HashMap<usize, Stack>),
        table: &StackTable,
        look: impl Fn() -> Result<Threads>,
    ) -> Result<Judged> {
        let mut judged = Judged {
            moved: self.restless,
            ..Judged::default()
        };
        if self.waiters.is_empty() {
            return Ok(judged);
        }
        for wait in waits.iter_mut() {
            if self.waiters.contains(&wait.waiter)
                && wait.is_unknown()
                && let Some(stack) = stacks.get(&wait.waiter)
            {
                name(wait, &threads.all[wait.waiter], stack, table);
            }
        }
        let then = look()?;
        judged.drop_ended(waits, threads, &then);
        judged.count_moved(&self.waiters, threads, &then);
        if waits.iter().any(is_of_python) {
            self.started = Instant::now();
            let claims = self.claims(threads, waits, table);
            judged.name_holders(waits, threads, &claims, &look()?);
        }
        Ok(judged)
    }

    /// Threads that are in blocks of locks that are waited for, by the lock.
    fn claims(
        &mut self,
        threads: &Threads,
        waits: &[Wait],
        table: &StackTable,
    ) -> HashMap<Identity, Claim> {
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

/// Facts that came of it.
#[derive(Default)]
pub(super) struct Judged {
    /// Waits that were dropped, of threads asked for.
    pub(super) passing: u64,
    /// Threads that wait in Python and have run meanwhile.
    pub(super) moved: usize,
    /// Waits for locks of Python that are left, and those of them that lasted until the end.
    pub(super) shown: (usize, usize),
    /// Threads with locks that have slept all the time.
    pub(super) holders: Vec<usize>,
}

impl Judged {
    /// Adds those of the waiters that have run meanwhile.
    fn count_moved(&mut self, waiters: &HashSet<usize>, threads: &Threads, then: &Threads) {
        let moved = waiters
            .iter()
            .filter(|one| !has_slept(threads, then, **one));
        self.moved += moved.count();
    }

    /// Drops waits whose threads have run before their stacks were read: these may be of something else.
    fn drop_ended(&mut self, waits: &mut Vec<Wait>, threads: &Threads, now: &Threads) {
        waits.retain(|wait| {
            let stands = !is_of_python(wait) || has_slept(threads, now, wait.waiter);
            self.passing += u64::from(!stands && threads.all[wait.waiter].wanted);
            stands
        });
    }

    /// Says who has the locks. Where a waiter has run while that was looked for, its lock was given back, or the wait was given up; if it
    /// is the one that has the lock now, those behind it waited for somebody else before.
    fn name_holders(
        &mut self,
        waits: &mut [Wait],
        threads: &Threads,
        claims: &HashMap<Identity, Claim>,
        now: &Threads,
    ) {
        let mut over = HashSet::new();
        for wait in waits.iter_mut().filter(|wait| is_of_python(wait)) {
            wait.is_over = !has_slept(threads, now, wait.waiter);
            self.shown.0 += 1;
            match wait.is_over {
                true => _ = over.insert(wait.waiter),
                false => self.shown.1 += 1,
            }
        }
        self.moved += over.len();
        let lasting = waits.iter_mut();
        for wait in lasting.filter(|wait| is_of_python(wait) && !wait.is_over) {
            let claim = claims.get(&wait.lock);
            if let Some(claim) = claim.filter(|claim| !over.contains(&claim.thread)) {
                wait.holder = claim.holder(wait.waiter);
            }
            let holder = wait.holder.thread();
            let asleep = holder.filter(|holder| has_slept(threads, now, *holder));
            self.holders.extend(asleep);
        }
    }
}

/// Looks whether a thread has not run between two looks.
fn has_slept(before: &Threads, now: &Threads, thread: usize) -> bool {
    let before = &before.all[thread];
    let now = now.of_tid(before.task.tid).map(|at| &now.all[at]);
    now.is_some_and(|now| now.slept_since(before))
}

/// A thread that is in a block of a lock's.
struct Claim {
    thread: usize,
    /// The lock says so.
    is_owner: bool,
    /// No other thread is. Where several are, one has given it away by hand, or it changed hands while the frames were read.
    is_only: bool,
}

impl Claim {
    /// One that waits for a lock in its own block may have given it away before, by hand.
    fn holder(&self, waiter: usize) -> Holder {
        match self.is_only {
            false => Holder::Unrecorded,
            true if self.thread == waiter && !self.is_owner => Holder::Perhaps(waiter),
            true => Holder::Thread(self.thread),
        }
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

#[cfg(test)]
#[path = "python_tests.rs"]
mod tests;
