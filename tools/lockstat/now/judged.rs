//! Waits for locks whose holders are read out of the program when the looks are over: those of Python and Java.
//!
//! That takes longer than the looks: more of them tell which of the waits have stood still until then.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use stacks::StackTable;

use super::claim::Claim;
use super::java::Javas;
use super::lock::{Identity, Wait, Waited};
use super::python::Pythons;
use super::thread::{Stack, Threads};

/// Says which of the waits are for such locks, and who has those. `look`, at all threads, is taken when that of the waiters has been read,
/// and when that of all threads has: a wait that ended before the first is dropped, and one that ended before the second has no known
/// holder.
pub(super) fn judge(
    (pythons, javas): (&mut Pythons, &Javas),
    threads: &Threads,
    (waits, stacks): (&mut Vec<Wait>, &HashMap<usize, Stack>),
    table: &StackTable,
    look: impl Fn() -> Result<Threads>,
) -> Result<Judged> {
    let mut judged = Judged {
        moved: pythons.restless,
        ..Judged::default()
    };
    pythons.name(threads, (waits, stacks), table);
    javas.name(threads, waits);
    if !pythons.waiters.is_empty() {
        let then = look()?;
        judged.drop_ended(waits, threads, &then);
        judged.count_moved(&pythons.waiters, threads, &then);
    }
    if waits.iter().any(|wait| wait.kind.is_read()) {
        let mut claims = pythons.claims(threads, waits, table);
        let (of_java, lasting) = javas.claims(threads, waits);
        claims.extend(of_java);
        judged.name_holders(waits, threads, (&claims, &lasting), &look()?);
    }
    Ok(judged)
}

/// Facts that came of it.
#[derive(Default)]
pub(super) struct Judged {
    /// Waits that were dropped, of threads asked for.
    pub(super) passing: u64,
    /// Threads that wait in Python or Java and have run meanwhile.
    pub(super) moved: usize,
    /// Waits for such locks that are left, and those of them that lasted until the end.
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

    /// Drops waits in Python whose threads have run before their stacks were read: these may be of something else.
    fn drop_ended(&mut self, waits: &mut Vec<Wait>, threads: &Threads, now: &Threads) {
        waits.retain(|wait| {
            let stands = wait.kind != Waited::Python || has_slept(threads, now, wait.waiter);
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
        (claims, lasting): (&HashMap<Identity, Claim>, &HashSet<usize>),
        now: &Threads,
    ) {
        let mut over = HashSet::new();
        for wait in waits.iter_mut().filter(|wait| wait.kind.is_read()) {
            let lasts = has_slept(threads, now, wait.waiter) || lasting.contains(&wait.waiter);
            wait.is_over = !lasts;
            self.shown.0 += 1;
            match wait.is_over {
                true => _ = over.insert(wait.waiter),
                false => self.shown.1 += 1,
            }
        }
        self.moved += over.len();
        let lasting = waits.iter_mut();
        for wait in lasting.filter(|wait| wait.kind.is_read() && !wait.is_over) {
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

#[cfg(test)]
#[path = "judged_tests.rs"]
mod tests;
