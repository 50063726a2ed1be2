//! Locks of programs in Python: which waits are for them, and who is in a `with` block of theirs.
//!
//! Locks are semaphores, or bytes: neither names anybody. The functions of the waiter tell that it waits for a lock, and the frames of all
//! threads who has taken it. That takes longer than the looks: one more tells which of the waits have stood still until then.

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
    /// Processes that there was no time to look at.
    pub(super) late: HashSet<u32>,
    started: Instant,
}

impl Pythons {
    /// Looks for them; `locked`: address spaces that are not to be read.
    pub(super) fn find(
        found: &[Found],
        threads: &Threads,
        locked: &HashSet<u64>,
        table: &mut StackTable,
    ) -> Self {
        let mut pythons = Self {
            waiters: HashSet::new(),
            late: HashSet::new(),
            started: Instant::now(),
        };
        let mut known: HashMap<u32, bool> = HashMap::new();
        for found in found.iter().filter(|found| is_unknown(&found.wait)) {
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
        pythons
    }

    fn are_late(&self) -> bool {
        self.started.elapsed() > PATIENCE
    }

    /// Says which of the waits are for locks of Python's, and who has those, by the stacks of who waits. A wait that ended before `look`, at
    /// all threads when that has been read, is dropped.
    pub(super) fn judge(
        &mut self,
        threads: &Threads,
        (waits, stacks): (&mut Vec<Wait>, &HashMap<usize, Stack>),
        table: &StackTable,
        look: impl Fn() -> Result<Threads>,
    ) -> Result<Judged> {
        let mut judged = Judged::default();
        for wait in waits.iter_mut() {
            if self.waiters.contains(&wait.waiter)
                && is_unknown(wait)
                && let Some(stack) = stacks.get(&wait.waiter)
            {
                name(wait, &threads.all[wait.waiter], stack, table);
            }
        }
        if !waits.iter().any(is_of_python) {
            return Ok(judged);
        }
        self.started = Instant::now();
        let claims = self.claims(threads, waits, table);
        let now = look()?;
        let has_slept = |thread: usize| {
            let before = &threads.all[thread];
            let now = now.of_tid(before.task.tid).map(|at| &now.all[at]);
            now.is_some_and(|now| now.slept_since(before))
        };
        waits.retain(|wait| {
            let stands = !is_of_python(wait) || has_slept(wait.waiter);
            judged.passing += u64::from(!stands && threads.all[wait.waiter].wanted);
            stands
        });
        for wait in waits.iter_mut().filter(|wait| is_of_python(wait)) {
            if let Some(claim) = claims.get(&wait.lock) {
                wait.holder = claim.holder(wait.waiter);
            }
            let holder = wait.holder.thread();
            judged
                .holders
                .extend(holder.filter(|holder| has_slept(*holder)));
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
    /// Threads with locks that have slept all the time.
    pub(super) holders: Vec<usize>,
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

fn is_unknown(wait: &Wait) -> bool {
    wait.private && wait.kind == Waited::Program(Class::Unknown)
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
