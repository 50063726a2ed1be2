//! From a wait to its root: the thread that others wait for, what most of its own time went by on, whom that waited for, and so on.
//!
//! All links are of one window. What a thread did is told by all of its time there that was neither idle nor asleep where others slept
//! for it, nor a wait for what a waiter asks; who waited for whom, by who ended the wait, or held the lock.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use profile::sums::sums;
use profile::text::{WIDTH, comm, sentence};
use serde_json::{Value, json};

use crate::why::kinds::{BLOCK_IO, Doing, ON_CPU, Place, RUN_QUEUE, Spot, is_of_line, line_of};
use crate::why::turns;
use crate::why::words::function;

/// Share of a wait from which a thread is a link.
const IS_LINK: f64 = 0.2;
/// Links at most.
const MOST: usize = 8;
/// Columns of its lines.
const COLUMNS: usize = WIDTH - 27;

/// The account's locks, by their numbers.
pub(crate) trait Holders {
    /// Threads that held a lock, or released it, and the time that others waited meanwhile, ns.
    fn holders(&self, number: usize) -> Vec<(u32, u64)>;
    /// Their most frequent doing meanwhile, and its share, from 0 to 1.
    fn did(&self, number: usize) -> Option<(Doing, f64)>;
    fn name(&self, number: usize) -> String;
}

/// A thread's time in one spot.
#[derive(Default)]
struct Part {
    ns: u64,
    /// Time by the thread that ended these waits, ns.
    enders: HashMap<u32, u64>,
}

/// All threads' time, and who ended their waits.
#[derive(Default)]
pub(crate) struct Threads {
    parts: HashMap<u32, HashMap<Spot, Part>>,
    /// Threads by the lines that have some of their time.
    lines: HashMap<Spot, HashSet<u32>>,
    names: HashMap<u32, Arc<str>>,
}

/// A thread that others wait for, or several that take turns with a lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    /// Its ID; 0: there are several.
    pub(crate) tid: u32,
    comm: Arc<str>,
    threads: usize,
    /// Its part of the waits before it, from 0 to 1.
    share: f64,
    /// The thing that most of its time went by on, its share of that, and the number of the lock; `None`: its time is not in the account.
    did: Option<(Place, f64, Option<usize>)>,
}

/// The end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The last link runs, sleeps, or waits for a device.
    Root,
    /// Nobody that has a large part of it is known.
    Unknown,
    /// The last link's time was not looked at.
    Outside,
    /// The last link had next to nothing to do itself: it waited for events, as far as its time tells.
    Idle,
    /// The last link waits for one before it.
    Cycle,
    Long,
}

/// Threads, each waiting for the next.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) links: Vec<Link>,
    end: End,
    /// Names of the locks by the links, empty where it is no lock's.
    locks: Vec<String>,
}

impl Threads {
    /// Adds time of a thread.
    pub(crate) fn add(&mut self, tid: u32, spot: &Spot, ns: u64, ender: Option<(u32, &Arc<str>)>) {
        self.lines.entry(line_of(spot)).or_default().insert(tid);
        let parts = self.parts.entry(tid).or_default();
        let part = parts.entry(spot.clone()).or_default();
        part.ns += ns;
        if let Some((tid, comm)) = ender {
            *part.enders.entry(tid).or_default() += ns;
            self.learn(tid, comm);
        }
    }

    /// Learns the name of a thread.
    pub(crate) fn learn(&mut self, tid: u32, comm: &Arc<str>) {
        self.names.entry(tid).or_insert_with(|| Arc::clone(comm));
    }

    /// The chain behind all waits of a spot's line in a window of so many ns.
    pub(crate) fn chain(&self, spot: &Spot, locks: &impl Holders, window_ns: u64) -> Option<Chain> {
        let (mut waiters, mut waited_ns, mut enders) = self.waits_of(&line_of(spot));
        let mut links: Vec<Link> = Vec::new();
        let mut at = spot.clone();
        let holders = spot.1.map(|lock| locks.holders(lock)).unwrap_or_default();
        let in_turn = turns::are_in_turn(&holders, &waiters);
        // A lock that nobody waits for is free at times.
        if in_turn
            && waited_ns > window_ns
            && let Some((link, its)) = self.in_turn(spot.1, locks, window_ns)
        {
            let tids = holders.iter().map(|(tid, _)| *tid);
            (waited_ns, enders) = self.waits_in(&its, tids);
            links.push(link);
            at = its;
        }
        let end = loop {
            if !links.is_empty() && is_root(at.0.0) {
                break End::Root;
            }
            let next = match at.1 {
                Some(lock) => largest(&locks.holders(lock), None),
                None => largest(&enders.drain().collect::<Vec<_>>(), Some(waited_ns)),
            };
            let Some((tid, share, ns)) = next else {
                break End::Unknown;
            };
            if links.iter().any(|link| link.tid == tid) {
                break End::Cycle;
            }
            // Several wait at once; of a lock nobody tells how many.
            let each_ns = ns / waiters.len().max(1) as u64;
            let did = self.most(tid, &waiters);
            let is_idle = did.is_some_and(|(.., all)| (all as f64) < IS_LINK * each_ns as f64);
            let did = did.filter(|_| !is_idle);
            waiters.insert(tid);
            links.push(Link {
                tid,
                threads: 1,
                comm: self.names.get(&tid).cloned().unwrap_or_default(),
                share,
                did: did.map(|(spot, share, _)| (spot.0.clone(), share, spot.1)),
            });
            if is_idle {
                break End::Idle;
            }
            let Some((spot, ..)) = did else {
                break End::Outside;
            };
            if links.len() >= MOST && !is_root(spot.0.0) {
                break End::Long;
            }
            at = spot.clone();
            let part = &self.parts[&tid][spot];
            (enders, waited_ns) = (part.enders.clone(), part.ns);
        };
        let names = links.iter().map(|link| {
            let lock = link.did.as_ref().and_then(|(_, _, lock)| *lock);
            lock.map(|lock| locks.name(lock)).unwrap_or_default()
        });
        let locks = names.collect();
        // Each of them waits for the others in its turn.
        let is_circle = in_turn && end == End::Cycle;
        (!links.is_empty() && !is_circle).then_some(Chain { links, end, locks })
    }

    /// Threads that take turns with a lock, and the only place in which they do for as long what they do when they have it.
    fn in_turn(
        &self,
        lock: Option<usize>,
        locks: &impl Holders,
        window_ns: u64,
    ) -> Option<(Link, Spot)> {
        let holders = locks.holders(lock?);
        let (did, share) = locks.did(lock?)?;
        let parts = holders.iter().filter_map(|(tid, _)| self.parts.get(tid));
        let parts = parts.flatten();
        let may_be = parts.filter(|((place, of), _)| *of != lock && did.is(place.0));
        let times = sums(may_be.map(|(spot, part)| (spot, part.ns)));
        let spot = turns::place_of(&times, share * window_ns as f64)?;
        let (first, _) = holders.first()?;
        let link = Link {
            tid: 0,
            threads: holders.len(),
            comm: self.names.get(first).cloned().unwrap_or_default(),
            share: 1.0,
            did: Some((spot.0.clone(), share, spot.1)),
        };
        Some((link, spot.clone()))
    }

    /// Threads that wait in a line, their time there, and that of each who ended these waits, ns.
    fn waits_of(&self, line: &Spot) -> (HashSet<u32>, u64, HashMap<u32, u64>) {
        let waiters = self.lines.get(line).cloned().unwrap_or_default();
        let (waited_ns, enders) = self.waits_in(line, waiters.iter().copied());
        (waiters, waited_ns, enders)
    }

    /// Time of threads in a line, and that of each who ended these waits, ns.
    fn waits_in(
        &self,
        line: &Spot,
        waiters: impl Iterator<Item = u32>,
    ) -> (u64, HashMap<u32, u64>) {
        let mut waited_ns = 0;
        let mut enders: HashMap<u32, u64> = HashMap::new();
        let parts = waiters.filter_map(|tid| self.parts.get(&tid)).flatten();
        for (_, part) in parts.filter(|(spot, _)| is_of_line(spot, line)) {
            waited_ns += part.ns;
            for (tid, ns) in &part.enders {
                *enders.entry(*tid).or_default() += ns;
            }
        }
        (waited_ns, enders)
    }

    /// The spot with most of a thread's time, its share of that, and that, ns. `waiters`: those who wait for it. A wait that they ended themselves was
    /// over before they waited, and is none of what they waited for, but for threads that do nothing else: those wait for each other.
    fn most(&self, tid: u32, waiters: &HashSet<u32>) -> Option<(&Spot, f64, u64)> {
        let parts = self.parts.get(&tid)?;
        let largest = |time_ns: &dyn Fn(&Spot, &Part) -> u64| {
            let times = parts.iter().map(|(spot, part)| (time_ns(spot, part), spot));
            let all: u64 = times.clone().map(|(ns, _)| ns).sum();
            let (ns, spot) = times.max()?;
            (ns > 0).then(|| (spot, ns as f64 / all as f64, all))
        };
        largest(&|spot, part| part.not_ended_by(waiters, spot.1))
            .or_else(|| largest(&|_, part| part.ns))
    }
}

impl Link {
    fn who(&self) -> String {
        match self.tid {
            0 => format!("{} threads in turn", self.threads),
            tid => format!("{} {tid}", comm(&self.comm)),
        }
    }
}

impl Part {
    /// Time of waits that others ended; of those for a lock, all: who released it says nothing of when.
    fn not_ended_by(&self, waiters: &HashSet<u32>, lock: Option<usize>) -> u64 {
        let theirs = self
            .enders
            .iter()
            .filter(|(tid, _)| lock.is_none() && waiters.contains(tid));
        self.ns.saturating_sub(theirs.map(|(_, ns)| ns).sum())
    }
}

/// The thread with most, its share of `all`, or of their sum, and its time; `None`: nobody has a large part.
fn largest(threads: &[(u32, u64)], all: Option<u64>) -> Option<(u32, f64, u64)> {
    let all = all.unwrap_or_else(|| threads.iter().map(|(_, ns)| ns).sum());
    let (tid, ns) = threads.iter().max_by_key(|(tid, ns)| (*ns, *tid))?;
    let share = *ns as f64 / all.max(1) as f64;
    (share >= IS_LINK).then_some((*tid, share, *ns))
}

/// Looks whether time of a kind is nobody else's doing.
pub(crate) fn is_root(kind: &str) -> bool {
    [
        ON_CPU,
        RUN_QUEUE,
        "sleep",
        BLOCK_IO,
        "page-fault",
        "throttled",
        "device",
    ]
    .contains(&kind)
}

/// A kind of time in words.
fn word(kind: &'static str) -> &'static str {
    match kind {
        ON_CPU => "on CPU",
        RUN_QUEUE => "waiting for a CPU",
        kind => kind,
    }
}

impl Chain {
    /// Looks whether it says more than who ended the wait.
    pub(crate) fn is_long(&self) -> bool {
        self.links.iter().any(|link| link.did.is_some())
    }

    /// `keeper 24 100% -> block-io in refill 87%`, in lines.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        for (link, lock) in self.links.iter().zip(&self.locks) {
            parts.push(format!("{} {:.0}%", link.who(), 100.0 * link.share));
            if let Some(((kind, place), share, _)) = &link.did {
                let what = if lock.is_empty() {
                    word(kind)
                } else {
                    lock.as_str()
                };
                let did = in_place(what, place.as_deref());
                parts.push(format!("{did} {:.0}%", 100.0 * share));
            }
        }
        parts.extend(match self.end {
            End::Root => None,
            End::Unknown => Some("(nobody known)".to_owned()),
            End::Outside => Some("(not traced)".to_owned()),
            End::Idle => Some("(idle meanwhile)".to_owned()),
            End::Cycle => Some("a thread before: a cycle".to_owned()),
            End::Long => Some("...".to_owned()),
        });
        let mut lines = sentence(&parts, " ->", COLUMNS).into_iter();
        let first = lines.next().map(|line| format!("  root: {line}"));
        first
            .into_iter()
            .chain(lines.map(|line| format!("  {line}")))
            .collect()
    }

    /// The last link's thread and doing, if that is the root: `keeper 24, by block-io in refill`.
    pub(crate) fn root(&self) -> Option<String> {
        let last = self.links.last().filter(|_| self.end == End::Root);
        let in_turn = || self.links.first().filter(|link| link.tid == 0);
        let last = last.or_else(in_turn)?;
        let ((kind, place), ..) = last.did.as_ref()?;
        let did = in_place(word(kind), place.as_deref());
        Some(format!("{}, {did}", last.who()))
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        let link = |(link, lock): (&Link, &String)| {
            let did = link.did.as_ref();
            json!({
                "comm": &*link.comm,
                "tid": link.tid,
                "threads": link.threads,
                "share": link.share,
                "kind": did.map(|((kind, _), ..)| *kind),
                "place": did.and_then(|((_, place), ..)| place.as_deref()),
                "lock": (!lock.is_empty()).then_some(lock),
                "own_share": did.map(|(_, share, _)| *share),
            })
        };
        let end = match self.end {
            End::Root => "root",
            End::Unknown => "unknown",
            End::Outside => "outside",
            End::Idle => "idle",
            End::Cycle => "cycle",
            End::Long => "long",
        };
        let links: Value = self.links.iter().zip(&self.locks).map(link).collect();
        json!({ "links": links, "end": end })
    }
}

/// Words for what a thread did: `sleep in refill`.
fn in_place(what: &str, place: Option<&str>) -> String {
    match place {
        Some(place) => format!("{what} in {}", function(place)),
        None => what.to_owned(),
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
