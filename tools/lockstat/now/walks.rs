//! The stacks of who waits and of who is waited for, and what they tell of the waits.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use bpf::lockstat_now::LockstatNowSkel;
use host::clock::monotonic_ns;
use stacks::StackTable;
use stacks::unwind::{Method, Unwinder, Wanted};
use symbols::{Origin, Symbolizer};

use super::java::Javas;
use super::judged;
use super::lock::Wait;
use super::names;
use super::python::Pythons;
use super::snapshot::{Looks, Snapshot};
use super::thread::{Stack, Thread, Threads};
use super::waits::Found;
use crate::lockstat::futex::calls;

/// Looks with the names of their waits.
pub(super) struct Settled {
    pub(super) snapshot: Snapshot,
    /// Address spaces that are not to be read.
    pub(super) locked: HashSet<u64>,
    /// Threads that waited in Python and ran before everything was known of their waits, and processes of such whose waits ended between
    /// the looks.
    pub(super) moved: usize,
    /// Waits for locks of Python that are in the snapshot, and those that lasted until the holders were looked for.
    pub(super) shown: (usize, usize),
}

impl Settled {
    /// More is known: of more waits for locks, or that there were some; else of fewer threads that have run meanwhile.
    pub(super) fn rank(&self) -> ((usize, usize), u64, Reverse<usize>) {
        (self.shown, self.snapshot.passing, Reverse(self.moved))
    }
}

/// Threads whose stacks are walked, and the processes whose memory may be read.
fn walked(looks: &Looks) -> (HashSet<usize>, HashSet<u32>) {
    let threads = &looks.snapshot.threads.all;
    let mut walked = looks.involved();
    walked.retain(|thread| threads[*thread].is_asleep());
    let readable = walked.iter().map(|thread| &threads[*thread]);
    let readable = readable.filter(|thread| !looks.locked.contains(&thread.space));
    let tgids = readable.map(|thread| thread.task.tgid).collect();
    (walked, tgids)
}

/// An empty table that is ready for these stacks.
pub(super) fn table(
    skel: &LockstatNowSkel<'_>,
    symbolizer: Symbolizer,
    method: Method,
    looks: &Looks,
) -> Result<StackTable> {
    let (_, tgids) = walked(looks);
    let wanted = Wanted {
        at_start: tgids.into_iter().collect(),
        later: false,
    };
    let unwinder =
        Unwinder::new(method, bpf::unwind_maps!(skel), &wanted).context("unwind user stacks")?;
    Ok(StackTable::new(symbolizer, unwinder, Origin::Tracepoint))
}

/// Walks the stacks in question, lets them settle what is unsure, and names locks after who takes them. Waits for locks of Python that
/// end meanwhile are passing: `look` tells.
pub(super) fn settle(
    looks: Looks,
    table: &mut StackTable,
    look: impl Fn() -> Result<Threads>,
) -> Result<Settled> {
    let (walked, tgids) = walked(&looks);
    let Looks {
        mut snapshot,
        found,
        restless,
        locked,
        started,
    } = looks;
    let threads = &snapshot.threads;
    table.prepare(tgids, None);
    for thread in walked {
        let is_locked = locked.contains(&threads.all[thread].space);
        let stack = walk(&threads.all[thread], is_locked, table);
        snapshot.stacks.insert(thread, stack);
    }
    let mut pythons = Pythons::find((&found, &restless), threads, &locked, table);
    let javas = Javas::find(&found, threads, &locked);
    let tgid = |thread: &usize| threads.all[*thread].task.tgid;
    table.prepare(pythons.waiters.iter().map(tgid), None);
    for thread in &pythons.waiters {
        let stack = walk(&threads.all[*thread], false, table);
        snapshot.stacks.insert(*thread, stack);
    }
    snapshot.waits = read(found, &snapshot.stacks);
    let (waits, stacks) = (&mut snapshot.waits, &snapshot.stacks);
    let runtimes = (&mut pythons, &javas);
    let judged = judged::judge(runtimes, &snapshot.threads, (waits, stacks), table, look)?;
    snapshot.passing += judged.passing;
    if !pythons.waiters.is_empty() || javas.are_there() {
        snapshot.apart = started.elapsed();
    }
    for holder in judged.holders {
        let stack = || walk(&snapshot.threads.all[holder], false, table);
        snapshot.stacks.entry(holder).or_insert_with(stack);
    }
    snapshot.losses.count(
        "python_late",
        "processes not looked at for Python: no time",
        pythons.late.len() as u64,
    );
    snapshot.losses.count(
        "java_left_out",
        "processes not looked at for Java: too many",
        javas.left_out,
    );
    names::name(
        &mut snapshot.waits,
        &snapshot.threads,
        &snapshot.stacks,
        &locked,
    );
    Ok(Settled {
        snapshot,
        locked,
        moved: judged.moved,
        shown: judged.shown,
    })
}

/// The waits, with what their stacks say of futexes that are unsure.
fn read(found: Vec<Found>, stacks: &HashMap<usize, Stack>) -> Vec<Wait> {
    let settled = |mut found: Found| {
        let stack = stacks.get(&found.wait.waiter);
        let functions = stack.iter().flat_map(|stack| calls(&stack.user));
        if let Some((futex, word)) = found.unsure {
            found.wait.settle(&futex, word, functions);
        }
        found.wait
    };
    found.into_iter().map(settled).collect()
}

fn walk(thread: &Thread, is_locked: bool, table: &mut StackTable) -> Stack {
    let user = if thread.space == 0 || thread.compat || is_locked {
        0
    } else {
        table.insert_blocked(thread.task.tgid, monotonic_ns(), thread.registers)
    };
    let kernel = if thread.kernel_stack.is_empty() {
        0
    } else {
        table.insert_kernel(&thread.kernel_stack)
    };
    Stack {
        user: table.user_names(user),
        user_end: table.user_end(user),
        kernel: table.kernel_names(kernel),
    }
}
