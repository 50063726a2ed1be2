//! Three looks at all threads, and what stood still between them.
//!
//! The first look finds who waits; then the lock words are read, and the kernel's locks once more by the second look; the
//! third one tells who has not run since the first. A wait that stood still from the first to the last look was under way
//! at every moment between them, and so were all of a circle of such waits at one moment: that is what makes it a
//! deadlock, and not a picture put together from different times.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use bpf::lockstat_now::types::wait_config;
use bpf::lockstat_now::{LockstatNowSkel, LockstatNowSkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use loader::section;
use profile::losses::Losses;
use session::targets::Settings;

use super::PROGRAMS;
use super::lock::{Holder, Wait};
use super::servers::Backends;
use super::thread::{Stack, Thread, Threads};
use super::waits::{self, Found};

/// How long an address space must be locked until it is given up.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the looks found.
pub(crate) struct Snapshot {
    /// As the last look saw them; waits and stacks go by their index.
    pub(crate) threads: Threads,
    /// Those that stood still.
    pub(crate) waits: Vec<Wait>,
    /// Waits for locks, of threads asked for, that did not last until they were known. Those that began later were not looked for.
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

/// Three looks, and the waits that stood still between them.
pub(super) struct Looks {
    pub(super) snapshot: Snapshot,
    pub(super) found: Vec<Found>,
    /// Processes asked for in which a thread's wait for nobody knows what has ended.
    pub(super) restless: HashSet<u32>,
    /// Address spaces that are not to be read.
    pub(super) locked: HashSet<u64>,
    pub(super) started: Instant,
}

impl Looks {
    /// Threads whose stacks are wanted.
    pub(super) fn involved(&self) -> HashSet<usize> {
        involved(&self.found)
    }

    /// Looks three times.
    pub(super) fn take(
        skel: &LockstatNowSkel<'_>,
        servers: &Backends,
        look: impl Fn() -> Result<Threads>,
    ) -> Result<Self> {
        let (first, locked) = first_look(&look)?;
        let started = Instant::now();
        let mut found = waits::find(&first, &locked, servers);
        let middle = look()?;
        reread_kernel_owners(&first, &middle, &mut found);
        let lost = ask_for_stacks(skel, &first, &found);
        let last = look()?;
        let apart = started.elapsed();

        let stuck: HashSet<u32> = members(&last, &locked);
        let (found, ended) = standing(&first, &last, found);
        let mut losses = Losses::default();
        losses.count("stacks_full", "kernel stacks: table full", lost);
        losses.count(
            "memory_locked",
            "processes not read, their mmap_lock is held",
            stuck.len() as u64,
        );
        let snapshot = Snapshot {
            threads: last,
            waits: Vec::new(),
            passing: ended.locks,
            stacks: HashMap::new(),
            said: HashMap::new(),
            statements: HashMap::new(),
            is_silent: servers.are_silent(&first),
            apart,
            losses,
            unnamed: String::new(),
        };
        Ok(Self {
            snapshot,
            found,
            restless: ended.restless,
            locked,
            started,
        })
    }
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

/// Waits of threads asked for that ended between the looks.
#[derive(Default)]
struct Ended {
    /// Those for locks.
    locks: u64,
    /// Processes of those for nobody knows what.
    restless: HashSet<u32>,
}

/// The waits whose waiters have not run since the first look, by the last look's numbers; and the others.
fn standing(first: &Threads, last: &Threads, found: Vec<Found>) -> (Vec<Found>, Ended) {
    let same = |index: usize| {
        let earlier = &first.all[index];
        let now = last.of_tid(earlier.task.tid)?;
        (last.all[now].identity == earlier.identity).then_some(now)
    };
    let mut standing = Vec::new();
    let mut ended = Ended::default();
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
            None if waiter.wanted => {
                ended.locks += u64::from(found.wait.kind.is_lock());
                // Who wants the interpreter asks again every 5 ms, and waits for no lock of the program's.
                if found.wait.is_unknown() && !found.wait.timed {
                    ended.restless.insert(waiter.task.tgid);
                }
            }
            None => {}
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

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
