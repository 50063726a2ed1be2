//! A CPU for the tool on a machine that has none left, and an account of when it had none.
//!
//! Tools are used on overloaded machines, where a tool that is not run can neither end in time nor empty its rings. Fair
//! scheduling does not prevent this: on Linux 6.18 a group of threads that wake each other can keep all other groups and the
//! kernel's own threads from running for 20 s and more (6d71a9c61604; a revert was posted in February 2026); an autogroup
//! (sched(7)) will do. Real-time hogs do so on every kernel.
//!
//! A guard, a thread with the highest real-time priority, looks ten times a second whether the tool's threads get what they
//! want. One that does not gets the next one, for some two seconds at a time; other threads of ours that starve meanwhile go
//! before ordinary ones. A thread that forks goes before all others while it does (`urgent`). How much real time leaves to others is up to the kernel: 5 % of each CPU, to all others up to 6.11
//! (`sched_rt_runtime_us`), and to ordinary threads since. Hogs of the same priority keep the guard waiting like everybody.
//! Without `CAP_SYS_NICE`, and in a group without a share of real time (`RT_GROUP_SCHED`), the guard only keeps the account.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use profile::units;

use class::{Class, Priority, set_class};
use urgent::Helped;
pub(crate) use urgent::urgently;
use watched::Watched;

use crate::clock::monotonic_ns;
use crate::privileges::{self, Capabilities};

mod class;
mod urgent;
mod watched;

/// Between two looks.
const PERIOD: Duration = Duration::from_nanos(PERIOD_NS);
const PERIOD_NS: u64 = 100_000_000;
/// Times without a CPU shorter than that are not worth a word.
const SHORTEST_NS: u64 = 1_000_000_000;

static GUARD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
static RESTS: AtomicBool = AtomicBool::new(false);
/// [`end`] waits for the guard.
static ENDS: AtomicBool = AtomicBool::new(false);
static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());
/// The thread that has [`WATCHED`]; 0: none.
static LOCKER: AtomicI32 = AtomicI32::new(0);
/// As in [`Starved`].
static TIMES: AtomicU64 = AtomicU64::new(0);
static STARVED_NS: AtomicU64 = AtomicU64::new(0);
/// Time of the guard's last look, or of the end of a [`Rest`], ns; 0: there was none.
static LOOKED_NS: AtomicU64 = AtomicU64::new(0);

/// When the machine did not run the tool, though it had something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starved {
    /// Number of such times, of a second and more each.
    pub times: u64,
    /// Their sum, ns.
    pub ns: u64,
}

impl Starved {
    /// For the end of a run in which there were such times.
    pub fn describe(&self) -> String {
        format!(
            "the machine did not run this tool for {}; it is overloaded, or the tool was stopped",
            units::duration(self.ns)
        )
    }
}

/// Has the calling thread guarded, which is the tool's main one.
pub fn guard() {
    watch_thread();
    let ordinary = class::class_of(0)
        .ok()
        .filter(|class| class.can_starve() && set_class(0, Class::real_time_inherited()).is_ok());
    // For a moment the class is inherited: a new thread that has no CPU could not ask for one.
    let guard = thread::Builder::new()
        .name("guard".into())
        .spawn(look_after);
    // Without a guard the tool works all the same.
    *GUARD.lock().unwrap_or_else(PoisonError::into_inner) = guard.ok();
    if let Some(ordinary) = ordinary {
        let _ = set_class(0, ordinary);
    }
}

/// Has the calling thread guarded, too.
pub fn watch_thread() {
    watch(Watched::thread(own_tid()));
}

/// Has all of the tool's threads guarded: a new one that has no CPU could not ask for it.
pub(crate) fn watch_threads() {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let tids = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
    for tid in tids {
        let is_watched = watched().iter().any(|watched| watched.is(tid));
        if !is_watched && class::class_of(tid).is_ok_and(|class| class.can_starve()) {
            watch(Watched::thread(tid));
        }
    }
}

/// The same of a process that the tool has forked.
pub fn watch_process(pid: libc::pid_t) {
    watch(Watched::process(pid));
}

/// To be called before the process is reaped.
pub fn forget_process(pid: libc::pid_t) {
    watched().retain(|watched| !watched.is(pid));
}

/// Nothing is looked after, and nothing wakes, while the result lives.
pub fn rest() -> Rest {
    RESTS.store(true, Ordering::Release);
    for one in &mut *watched() {
        one.lower();
    }
    Rest(())
}

/// See [`rest`].
#[derive(Debug)]
#[must_use]
pub struct Rest(());

impl Drop for Rest {
    fn drop(&mut self) {
        LOOKED_NS.store(monotonic_ns(), Ordering::Release);
        RESTS.store(false, Ordering::Release);
        wake_guard();
    }
}

/// To be called last: there will be no guard while the kernel takes the process apart, which takes a CPU, too. Its threads
/// are raised for that.
pub fn end() {
    let Some(guard) = GUARD.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    RESTS.store(false, Ordering::Release);
    ENDS.store(true, Ordering::Release);
    guard.thread().unpark();
    // It does not panic; if it did, there is nothing left to do.
    let _ = guard.join();
}

/// The account until now. A time that has just ended, of which the guard has not yet heard, is in it.
pub fn starved() -> Starved {
    let looked_ns = LOOKED_NS.load(Ordering::Acquire);
    let unheard_ns = match looked_ns {
        0 => 0,
        _ => late_ns(monotonic_ns().saturating_sub(looked_ns)),
    };
    let is_unheard = unheard_ns >= SHORTEST_NS && !RESTS.load(Ordering::Acquire);
    Starved {
        times: TIMES.load(Ordering::Relaxed) + u64::from(is_unheard),
        ns: STARVED_NS.load(Ordering::Relaxed) + if is_unheard { unheard_ns } else { 0 },
    }
}

/// `false`: there is none.
fn wake_guard() -> bool {
    let guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(guard) = &*guard {
        guard.thread().unpark();
    }
    guard.is_some()
}

/// The calling thread's number.
fn own_tid() -> libc::pid_t {
    rustix::thread::gettid().as_raw_pid()
}

fn watch(one: Option<Watched>) {
    watched().extend(one);
}

fn watched() -> List {
    let tid = own_tid();
    let list = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    LOCKER.store(tid, Ordering::Release);
    List(list)
}

/// What is watched, locked by a thread that the guard knows.
struct List(MutexGuard<'static, Vec<Watched>>);

impl Deref for List {
    type Target = Vec<Watched>;

    fn deref(&self) -> &Vec<Watched> {
        &self.0
    }
}

impl DerefMut for List {
    fn deref_mut(&mut self) -> &mut Vec<Watched> {
        &mut self.0
    }
}

impl Drop for List {
    fn drop(&mut self) {
        LOCKER.store(0, Ordering::Release);
    }
}

fn look_after() {
    let _ = set_class(0, Class::real_time(Priority::Guard));
    // The files that it reads are open.
    let _ = privileges::keep_only(Capabilities::SYS_NICE);
    let (mut urgent, mut locker) = (Helped::default(), Helped::default());
    let mut is_urgent = false;
    LOOKED_NS.store(monotonic_ns(), Ordering::Release);
    while !ENDS.load(Ordering::Acquire) {
        // Looks would lower somebody who does what is urgent.
        thread::park_timeout(if is_urgent { PERIOD } else { until_next_look() });
        is_urgent = urgent.answer();
        while RESTS.load(Ordering::Acquire) {
            thread::park();
            is_urgent = urgent.answer();
        }
        if !is_urgent && until_next_look().is_zero() {
            let now_ns = monotonic_ns();
            let last_ns = LOOKED_NS.swap(now_ns, Ordering::AcqRel);
            look(now_ns.saturating_sub(last_ns), &mut locker);
        }
    }
    locker.help(0);
    urgent.help(0);
    for one in &mut *watched() {
        one.raise();
    }
}

fn until_next_look() -> Duration {
    let passed_ns = monotonic_ns().saturating_sub(LOOKED_NS.load(Ordering::Acquire));
    Duration::from_nanos(PERIOD_NS.saturating_sub(passed_ns))
}

/// By how much a look came too late, ns: no thread had a CPU, or the process was stopped.
fn late_ns(elapsed_ns: u64) -> u64 {
    elapsed_ns.saturating_sub(PERIOD_NS)
}

fn look(elapsed_ns: u64, locker: &mut Helped) {
    note_starved(late_ns(elapsed_ns));
    // Lateness is counted once, not for each thread again.
    let elapsed_ns = elapsed_ns.min(2 * PERIOD_NS);
    let mut watched = match WATCHED.try_lock() {
        Ok(watched) => watched,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // It may have no CPU.
        Err(TryLockError::WouldBlock) => return locker.help(LOCKER.load(Ordering::Acquire)),
    };
    locker.help(0);
    for one in &mut *watched {
        note_starved(one.look(elapsed_ns));
    }
}

fn note_starved(ns: u64) {
    if ns >= SHORTEST_NS {
        TIMES.fetch_add(1, Ordering::Relaxed);
        STARVED_NS.fetch_add(ns, Ordering::Relaxed);
    }
}
