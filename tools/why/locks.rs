//! Locks behind waits: which one, and who held it meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use budget::Told;
use libbpf_rs::Object;
use profile::brief::place;
use profile::frame::Frame;
use profile::losses::Losses;
use profile::model::{Profile, Sample};
use profile::reasons;
use profile::sums::sums;

use crate::lockstat::{self, Contended, Lockstat, Side, Waited};
use crate::why::beside::Exact;
use crate::why::chains;
use crate::why::kinds::{Doing, Place};
use crate::why::lock::Lock;

/// Kinds of waits in which PostgreSQL's processes wait for its own locks.
const OF_SERVERS: [&str; 5] = ["futex", "semaphore", "epoll", "poll", "socket"];
/// The kind of waits for a futex.
const FUTEX: &str = "futex";
/// Words behind a file whose functions have no names.
const NO_SYMBOLS: &str = " (no symbols)";
/// Share of the waits of a kind in a function from which a lock has a line of its own.
const OWN_LINE: f64 = 0.1;
/// Share of a thread's idleness in a place from which it waits for a lock there.
const FOR_LOCK: f64 = 0.5;
/// Share of a thread's time in a place from which lockstat has all of it.
const SAME: f64 = 0.98;

/// lockstat's engine.
pub(crate) struct Locks<'a>(pub(crate) Lockstat<'a>);

impl Exact for Locks<'_> {
    type Found = lockstat::Found;

    fn object(&self) -> &Object {
        self.0.object()
    }

    fn told<'s>(&'s mut self, end_ns: &'s mut u64) -> Result<Told<'s>> {
        self.0.told(end_ns)
    }

    fn look(&mut self) -> Result<()> {
        self.0.look()
    }

    fn halt(&mut self) -> Result<()> {
        self.0.halt()
    }

    fn detach(&mut self) {
        self.0.detach();
    }

    fn found(&mut self) -> Result<(lockstat::Found, Losses)> {
        self.0.found()
    }
}

/// Waits as lockstat has seen them, in a part of the time: `scale` times as many there were.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) locks: &'a [Contended],
    /// Those that are known to be for work.
    pub(crate) work: &'a [Waited],
    pub(crate) scale: f64,
}

impl<'a> Seen<'a> {
    pub(crate) fn of(found: &'a lockstat::Found, scale: f64) -> Self {
        Self {
            locks: &found.locks,
            work: &found.work,
            scale,
        }
    }
}

/// A place where a thread waits, by its ID.
type Spot = (u32, Place);

/// Number of waits, and their time, ns.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    ns: u64,
}

impl Sum {
    fn add(&mut self, count: u64, ns: u64) {
        self.count += count;
        self.ns += ns;
    }

    /// Tells if a spot's waits for locks are all its waits. A wait begins and ends for lockstat in other instructions than for offcputime,
    /// and an interrupt, or a slow emulator, may lie between.
    fn are_all(self, all: Self, is_whole: bool) -> bool {
        is_whole && self.count == all.count || self.ns as f64 >= SAME * all.ns as f64
    }
}

/// Waits for locks, and all waits in the same spots.
#[derive(Default)]
struct Spots {
    /// Waits for each lock, by its number, as lockstat has them.
    locks: HashMap<Spot, Vec<(usize, Sum)>>,
    /// Waits for work, the same.
    work: HashMap<Spot, Sum>,
    /// Waits as offcputime has them.
    all: HashMap<Spot, Sum>,
}

/// Waits by the lock that they were for.
#[derive(Default)]
pub(crate) struct Split {
    locks: Vec<Lock>,
    /// Shares of a spot's time, from 0 to 1 in all.
    parts: HashMap<Spot, Vec<(usize, f64)>>,
    /// The same of waits for work.
    work: HashMap<Spot, f64>,
    /// Time by lockstat of waits of a kind for a lock, ns.
    lockstat_ns: HashMap<(&'static str, usize), u64>,
}

impl Split {
    /// Finds the lock of each wait in `off` by what lockstat has seen.
    pub(crate) fn of(off: &Profile, seen: Seen<'_>) -> Self {
        let (locks, scale) = (seen.locks, seen.scale);
        let mut spots = Spots::of(off, seen);
        let large = spots.large();
        let mut split = Self {
            locks: locks.iter().map(|lock| Lock::of(&lock.row)).collect(),
            lockstat_ns: sums(
                large
                    .iter()
                    .map(|(((kind, _), lock), ns)| ((*kind, *lock), *ns)),
            ),
            ..Self::default()
        };
        for spot in spots.work.keys() {
            spots.locks.entry(spot.clone()).or_default();
        }
        for (spot, of_spot) in spots.locks {
            let all = spots.all.get(&spot).copied().unwrap_or_default();
            let mut of_locks = Sum::default();
            for (_, sum) in &of_spot {
                of_locks.add(sum.count, sum.ns);
            }
            let work = spots.work.get(&spot).copied().unwrap_or_default();
            of_locks.add(work.count, work.ns);
            // offcputime's time stands: where lockstat has more, or the same waits, its locks share what there is.
            let is_all = of_locks.are_all(all, scale == 1.0);
            let of_ns = if is_all { of_locks.ns } else { all.ns }.max(1);
            let is_large = |number| large.contains_key(&(spot.1.clone(), number));
            let own = of_spot.iter().filter(|(number, _)| is_large(*number));
            let shares = own.map(|(number, sum)| (*number, sum.ns as f64 / of_ns as f64));
            split.parts.insert(spot.clone(), shares.collect());
            split.work.insert(spot, work.ns as f64 / of_ns as f64);
        }
        split
    }

    /// A lock by its number, as a line of waits of a kind has it.
    pub(crate) fn lock(&self, number: usize, kind: &'static str) -> Option<Lock> {
        let mut lock = self.locks.get(number)?.clone();
        let seen_ns = self.lockstat_ns.get(&(kind, number));
        lock.lockstat_ns = seen_ns.copied().unwrap_or(0);
        Some(lock)
    }

    /// Part of a wait's time that was for work, ns.
    pub(crate) fn for_work(&self, sample: &Sample, place: &Place, ns: u64) -> u64 {
        let share = self.work.get(&spot_in(sample, place)).copied();
        let part = (ns as f64 * share.unwrap_or(0.0)).round();
        (part as u64).min(ns)
    }

    /// Locks that a wait was for, by their numbers, with their parts of its time, ns; the rest of it was for none that is known.
    pub(crate) fn parts(&self, sample: &Sample, place: &Place, ns: u64) -> Vec<(usize, u64)> {
        let spot = spot_in(sample, place);
        let parts = self.parts.get(&spot).into_iter().flatten();
        let mut left = ns;
        let mut found = Vec::new();
        for (number, share) in parts {
            // A wait that is one lock's is its to the nanosecond.
            let part = ((ns as f64 * share).round() as u64).min(left);
            left -= part;
            found.push((*number, part));
        }
        found
    }
}

impl chains::Holders for Split {
    fn holders(&self, number: usize) -> Vec<(u32, u64)> {
        let lock = self.locks.get(number);
        lock.map(Lock::threads).unwrap_or_default()
    }

    fn did(&self, number: usize) -> Option<(Doing, f64)> {
        self.locks.get(number)?.did
    }

    fn name(&self, number: usize) -> String {
        self.locks.get(number).map(Lock::short).unwrap_or_default()
    }
}

fn spot_in(sample: &Sample, (kind, function): &Place) -> Spot {
    let function = function.as_deref().map(|name| without_call(name).into());
    (sample.task.tid, (*kind, function))
}

/// Waits in a place, ns.
#[derive(Default)]
struct Idleness {
    idle_ns: u64,
    busy_ns: u64,
}

/// Takes waits for locks out of idleness: a thread that is seen nowhere else seems at home where it waits for one.
pub(crate) fn take_from_idleness(off: &mut Profile, seen: Seen<'_>) {
    let scale = seen.scale;
    let mut all: HashMap<Spot, Idleness> = HashMap::new();
    for sample in &off.samples {
        let [ns, _] = reasons::parts(off, sample.reason, &sample.values);
        let all = all.entry(spot(sample)).or_default();
        *if sample.idle {
            &mut all.idle_ns
        } else {
            &mut all.busy_ns
        } += ns;
    }
    let mut for_locks: HashMap<Spot, u64> = HashMap::new();
    for lock in seen.locks.iter().filter(|lock| lock.is_lock()) {
        for waited in &lock.waits {
            let function = function(&waited.kernel, &waited.user);
            for kind in kinds(lock) {
                let place = (*kind, function.clone());
                *for_locks.entry((waited.task.tid, place)).or_default() += waited.ns;
            }
        }
    }
    let mut for_work: HashMap<Spot, u64> = HashMap::new();
    for waited in seen.work {
        *for_work.entry(spot_of(waited)).or_default() += waited.ns;
    }
    let is_for_lock = |spot: &Spot| {
        let all = &all[spot];
        let of = |sums: &HashMap<Spot, u64>| sums.get(spot).copied().unwrap_or(0) as f64 * scale;
        // Waits for locks that are no idleness come first, and those that are known to be for work will be told from others.
        let rest = of(&for_locks) - all.busy_ns as f64;
        let idle_ns = all.idle_ns as f64;
        rest > 0.0 && (rest >= FOR_LOCK * idle_ns || rest + of(&for_work) >= SAME * idle_ns)
    };
    for sample in off.samples.iter_mut().filter(|sample| sample.idle) {
        sample.idle = !is_for_lock(&spot(sample));
    }
}

/// The place of a wait for work, which is one for a futex.
fn spot_of(waited: &Waited) -> Spot {
    let place = (FUTEX, function(&waited.kernel, &waited.user));
    (waited.task.tid, place)
}

/// The place of a wait.
fn spot(sample: &Sample) -> Spot {
    let kind = sample.reason.unwrap_or("other");
    let place = (kind, function(&sample.kernel, &sample.user));
    (sample.task.tid, place)
}

impl Spots {
    fn of(off: &Profile, seen: Seen<'_>) -> Self {
        let scale = seen.scale;
        let mut spots = Self::default();
        for sample in off.samples.iter().filter(|sample| !sample.idle) {
            let [ns, _] = reasons::parts(off, sample.reason, &sample.values);
            let sum = spots.all.entry(spot(sample)).or_default();
            sum.add(sample.count, ns);
        }
        for waited in seen.work {
            let spot = spot_of(waited);
            if spots.all.contains_key(&spot) {
                let ns = (waited.ns as f64 * scale) as u64;
                spots.work.entry(spot).or_default().add(waited.count, ns);
            }
        }
        for (number, lock) in seen.locks.iter().enumerate() {
            for waited in &lock.waits {
                let ns = (waited.ns as f64 * scale) as u64;
                let function = function(&waited.kernel, &waited.user);
                let mut found = kinds(lock)
                    .iter()
                    .map(|kind| (waited.task.tid, (*kind, function.clone())));
                let Some(spot) = found.find(|spot| spots.all.contains_key(spot)) else {
                    continue;
                };
                let of_spot = spots.locks.entry(spot).or_default();
                let known = of_spot.iter().position(|(same, _)| *same == number);
                let at = known.unwrap_or_else(|| {
                    of_spot.push((number, Sum::default()));
                    of_spot.len() - 1
                });
                of_spot[at].1.add(waited.count, ns);
            }
        }
        spots
    }

    /// Locks with a large part of all waits in a place.
    fn large(&self) -> HashMap<(Place, usize), u64> {
        let places = sums(self.all.iter().map(|((_, place), all)| (place, all.ns)));
        let mut large = sums(self.locks.iter().flat_map(|((_, place), locks)| {
            let locks = locks.iter();
            locks.map(|(number, sum)| ((place.clone(), *number), sum.ns))
        }));
        large.retain(|(place, _), ns| {
            let all = places.get(place).copied().unwrap_or(0);
            *ns as f64 >= OWN_LINE * all as f64
        });
        large
    }
}

/// Kinds of the waits for a lock, by offcputime's words, the likeliest first.
fn kinds(lock: &Contended) -> &'static [&'static str] {
    let identity = &lock.row.identity;
    match lock.row.class {
        "sysv-sem" => &["semaphore"],
        "eventfd" => &["eventfd"],
        "jobserver" => &["pipe"],
        "gil" => &["gil", "futex"],
        _ if identity.side == Side::Kernel => &["lock"],
        _ if identity.is_futex() => &[FUTEX],
        _ if identity.is_files() => &["file-lock"],
        _ => &OF_SERVERS,
    }
}

/// Name of the function that a stack is in.
fn function(kernel: &[Frame], user: &[Frame]) -> Option<Arc<str>> {
    place(kernel, user).map(|name| without_call(&name).into())
}

/// A file's name alone where that stands for functions without names: lockstat does not see by which call they wait.
fn without_call(name: &str) -> &str {
    let end = name.find(NO_SYMBOLS).map(|at| at + NO_SYMBOLS.len());
    end.map_or(name, |end| &name[..end])
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
