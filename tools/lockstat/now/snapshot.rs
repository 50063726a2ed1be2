//! Three looks at all threads, and what stood still between them.
//!
//! The first look finds who waits; then the lock words are read, and the kernel's locks once more by the second look; the
//! third one tells who has not run since the first. A wait that stood still from the first to the last look was under way
//! at every moment between them, and so were all of a circle of such waits at one moment: that is what makes it a
//! deadlock, and not a picture put together from different times.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bpf::lockstat_now::types::wait_config;
use bpf::lockstat_now::{LockstatNowSkel, LockstatNowSkelBuilder};
use host::clock::monotonic_ns;
use libbpf_rs::{MapCore, MapFlags};
use loader::iterate;
use loader::section;
use profile::losses::Losses;
use session::targets::Settings;
use stacks::StackTable;
use stacks::unwind::{Method, Unwinder, Wanted};
use symbols::{Origin, Symbolizer};

use super::lock::{Holder, Wait};
use super::python::Pythons;
use super::servers::Backends;
use super::thread::{Stack, Thread, Threads};
use super::waits::{self, Found};
use super::{PROGRAMS, names};
use crate::lockstat::futex::calls;

/// How long an address space must be locked until it is given up.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the looks found.
pub(crate) struct Snapshot {
    /// As the last look saw them; waits and stacks go by their index.
    pub(crate) threads: Threads,
    /// Those that stood still.
    pub(crate) waits: Vec<Wait>,
    /// Waits for locks, of threads asked for, that did not last until the last look. Those that began later were not looked for.
    pub(crate) passing: u64,
    /// Of waiters for locks and of those who have the locks, if they sleep.
    pub(crate) stacks: HashMap<usize, Stack>,
    /// What processes of servers say of themselves that others wait for: `client ClientRead`.
    pub(crate) said: HashMap<usize, String>,
    /// Statements of those that wait and that others wait for, without data; none where they were not asked for.
    pub(crate) statements: HashMap<usize, String>,
    /// A server's processes do not say what they wait for.
    pub(crate) is_silent: bool,
    /// Between the first look and the last.
    pub(crate) apart: Duration,
    pub(crate) losses: Losses,
    /// What the stacks have no names of, in words.
    pub(crate) unnamed: String,
}

/// Loads the iterator.
pub(crate) fn load(targets: &Settings) -> Result<LockstatNowSkel<'static>> {
    let skel = loader::load(LockstatNowSkelBuilder::default(), &PROGRAMS, &[], |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        rodata.targets = bpf::target_config!(bpf::lockstat_now::types, targets);
        rodata.comm_glob = bpf::comm_glob!(bpf::lockstat_now::types, &targets.comm);
        rodata.waits = wait_config {
            futex_syscall: host::waits::futex_syscall(),
            pad: 0,
            takes_fd: host::waits::takes_fd(),
        };
        Ok(())
    })?;
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    Ok(skel)
}

/// Looks; `method`: how user stacks are walked.
pub(crate) fn take(
    skel: &LockstatNowSkel<'_>,
    symbolizer: Symbolizer,
    method: Method,
    with_statements: bool,
) -> Result<Snapshot> {
    let servers = Backends::find(with_statements);
    let look = || Threads::decode(&iterate::run(skel.links.look.as_ref())?);
    let (first, locked) = first_look(look)?;
    let started = Instant::now();
    let mut found = waits::find(&first, &locked, &servers);
    let middle = look()?;
    reread_kernel_owners(&first, &middle, &mut found);
    let lost = ask_for_stacks(skel, &first, &found);
    let last = look()?;
    let apart = started.elapsed();

    let stuck: HashSet<u32> = members(&last, &locked);
    let (found, passing) = standing(&first, &last, found);
    let mut snapshot = Snapshot {
        threads: last,
        waits: Vec::new(),
        passing,
        stacks: HashMap::new(),
        said: HashMap::new(),
        statements: HashMap::new(),
        is_silent: servers.are_silent(&first),
        apart,
        losses: Losses::default(),
        unnamed: String::new(),
    };
    let losses = &mut snapshot.losses;
    losses.count("stacks_full", "kernel stacks: table full", lost);
    losses.count(
        "memory_locked",
        "processes not read, their mmap_lock is held",
        stuck.len() as u64,
    );
    name(
        &mut snapshot,
        skel,
        symbolizer,
        method,
        (found, &locked),
        look,
    )?;
    let holders = snapshot
        .waits
        .iter()
        .filter_map(|wait| wait.holder.thread());
    let said = holders.filter_map(|holder| {
        let thread = &snapshot.threads.all[holder];
        Some((holder, servers.says(thread, &locked)?))
    });
    snapshot.said = said.collect();
    snapshot.statements = statements(&snapshot, &servers, &locked);
    Ok(snapshot)
}

/// Statements of all who wait and who are waited for.
fn statements(
    snapshot: &Snapshot,
    servers: &Backends,
    locked: &HashSet<u64>,
) -> HashMap<usize, String> {
    let waits = snapshot.waits.iter();
    let involved = waits.flat_map(|wait| {
        let others = wait.holder.thread().into_iter();
        others.chain([wait.waiter]).chain(wait.told.also.clone())
    });
    let involved: HashSet<usize> = involved.collect();
    let statement = |thread: usize| {
        let said = servers.statement(&snapshot.threads.all[thread], locked)?;
        Some((thread, said))
    };
    involved.into_iter().filter_map(statement).collect()
}

/// Reading a process's memory and mappings takes its mmap_lock. Who holds that for ever would hold us too: so where somebody
/// has waited for it for as long as [`PATIENCE`], nothing is read. Gives the first look and such address spaces.
fn first_look(look: impl Fn() -> Result<Threads>) -> Result<(Threads, HashSet<u64>)> {
    let waits = |thread: &Thread| thread.kernel_lock.is_some_and(|lock| lock.is_mmap_lock);
    let before = look()?;
    if !before.all.iter().any(waits) {
        return Ok((before, HashSet::new()));
    }
    std::thread::sleep(PATIENCE);
    let first = look()?;
    let still = before.all.iter().filter(|thread| waits(thread));
    let still = still.filter(|thread| {
        let now = first.of_tid(thread.task.tid);
        now.is_some_and(|now| first.all[now].slept_since(thread))
    });
    let locked = still.map(|thread| thread.space).collect();
    Ok((first, locked))
}

/// The processes of these address spaces.
fn members(threads: &Threads, spaces: &HashSet<u64>) -> HashSet<u32> {
    let all = threads.all.iter();
    all.filter(|thread| spaces.contains(&thread.space))
        .map(|thread| thread.task.tgid)
        .collect()
}

/// Owners as they were when everybody in question was asleep, unlike those of the first look, which saw one task after the other.
fn reread_kernel_owners(first: &Threads, middle: &Threads, found: &mut [Found]) {
    for found in found.iter_mut().filter(|found| !found.wait.is_futex()) {
        let tid = first.all[found.wait.waiter].task.tid;
        let lock = middle
            .of_tid(tid)
            .and_then(|thread| middle.all[thread].kernel_lock);
        if let Some(lock) = lock {
            found.wait.holder = waits::kernel_holder(first, &lock);
        }
    }
}

/// Threads whose stacks are wanted: who waits for what is a lock, or may be one, and who has it.
fn involved(found: &[Found]) -> HashSet<usize> {
    let may_be_locks = found
        .iter()
        .filter(|found| found.unsure.is_some() || !found.wait.kind.is_event());
    may_be_locks
        .flat_map(|found| [Some(found.wait.waiter), found.wait.holder.thread()])
        .flatten()
        .collect()
}

/// Returns how many found no room.
fn ask_for_stacks(skel: &LockstatNowSkel<'_>, threads: &Threads, found: &[Found]) -> u64 {
    let mut lost = 0;
    for thread in involved(found) {
        let tid = threads.all[thread].task.tid.to_ne_bytes();
        let added = skel.maps.with_stack.update(&tid, &[1], MapFlags::ANY);
        lost += u64::from(added.is_err());
    }
    lost
}

/// The waits whose waiters have not run since the first look, by the last look's numbers; and how many others were for locks, of
/// threads asked for.
fn standing(first: &Threads, last: &Threads, found: Vec<Found>) -> (Vec<Found>, u64) {
    let same = |index: usize| {
        let earlier = &first.all[index];
        let now = last.of_tid(earlier.task.tid)?;
        (last.all[now].identity == earlier.identity).then_some(now)
    };
    let mut standing = Vec::new();
    let mut ended = 0;
    for mut found in found {
        let waiter = &first.all[found.wait.waiter];
        let slept = |now: &usize| last.all[*now].slept_since(waiter);
        match same(found.wait.waiter).filter(slept) {
            Some(now) => {
                found.wait.waiter = now;
                found.wait.holder = match found.wait.holder.renumbered(same) {
                    Holder::Gone(tid) => begun_since(last, now, tid),
                    holder => holder,
                };
                let also = std::mem::take(&mut found.wait.told.also).into_iter();
                found.wait.told.also = also.filter_map(same).collect();
                standing.push(found);
            }
            None => ended += u64::from(waiter.wanted && found.wait.kind.is_lock()),
        }
    }
    (standing, ended)
}

/// The holder of a lock that names a thread which the first look did not know: a younger one may have taken it.
fn begun_since(last: &Threads, waiter: usize, tid: u32) -> Holder {
    let waiter = &last.all[waiter];
    let is_its = |index: &usize| {
        let thread = &last.all[*index];
        thread.space == waiter.space && !thread.is_dead()
    };
    let named = last.as_known_to(waiter, tid).filter(is_its);
    named.map_or(Holder::Gone(tid), Holder::Thread)
}

/// Walks the stacks in question, lets them settle what is unsure, and names kernel locks after who takes them. Waits for locks of Python that
/// end meanwhile are passing: `look` tells.
fn name(
    snapshot: &mut Snapshot,
    skel: &LockstatNowSkel<'_>,
    symbolizer: Symbolizer,
    method: Method,
    (found, locked): (Vec<Found>, &HashSet<u64>),
    look: impl Fn() -> Result<Threads>,
) -> Result<()> {
    let threads = &snapshot.threads;
    let is_locked = |thread: &usize| locked.contains(&threads.all[*thread].space);
    let mut walked = involved(&found);
    walked.retain(|thread| threads.all[*thread].is_asleep());
    let tgid = |thread: &usize| threads.all[*thread].task.tgid;
    let readable = walked.iter().filter(|thread| !is_locked(thread));
    let tgids: HashSet<u32> = readable.map(tgid).collect();
    let wanted = Wanted {
        at_start: tgids.iter().copied().collect(),
        later: false,
    };
    let unwinder =
        Unwinder::new(method, bpf::unwind_maps!(skel), &wanted).context("unwind user stacks")?;
    let mut table = StackTable::new(symbolizer, unwinder, Origin::Tracepoint);
    table.prepare(tgids, None);
    for thread in walked {
        let stack = walk(threads, thread, is_locked(&thread), &mut table);
        snapshot.stacks.insert(thread, stack);
    }
    let mut pythons = Pythons::find(&found, threads, locked, &mut table);
    table.prepare(pythons.waiters.iter().map(tgid), None);
    for thread in &pythons.waiters {
        let stack = walk(threads, *thread, false, &mut table);
        snapshot.stacks.insert(*thread, stack);
    }
    for mut found in found {
        let stack = snapshot.stacks.get(&found.wait.waiter);
        let functions = stack.iter().flat_map(|stack| calls(&stack.user));
        if let Some((futex, word)) = found.unsure {
            found.wait.settle(&futex, word, functions);
        }
        snapshot.waits.push(found.wait);
    }
    let (waits, stacks) = (&mut snapshot.waits, &snapshot.stacks);
    let judged = pythons.judge(&snapshot.threads, (waits, stacks), &table, look)?;
    snapshot.passing += judged.passing;
    for holder in judged.holders {
        let stack = || walk(&snapshot.threads, holder, false, &mut table);
        snapshot.stacks.entry(holder).or_insert_with(stack);
    }
    snapshot.losses.count(
        "python_late",
        "processes not looked at for Python: no time",
        pythons.late.len() as u64,
    );
    names::name(
        &mut snapshot.waits,
        &snapshot.threads,
        &snapshot.stacks,
        locked,
    );
    table.count_losses(&mut snapshot.losses);
    snapshot.unnamed = table.describe_unnamed();
    Ok(())
}

fn walk(threads: &Threads, index: usize, is_locked: bool, table: &mut StackTable) -> Stack {
    let thread = &threads.all[index];
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

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
