//! From a wait to its root: the thread that others wait for, what most of its own time went by on, whom that waited for, and so on.
//!
//! All links are of one window. What a thread did is told by all of its time there that was neither idle nor asleep where others slept
//! for it; who waited for whom, by who ended the wait, or held the lock.

use std::collections::HashMap;
use std::sync::Arc;

use profile::text::{WIDTH, comm, sentence};
use serde_json::{Value, json};

use crate::why::kinds::{ON_CPU, RUN_QUEUE};
use crate::why::locks::Place;
use crate::why::words::function;

/// Share of a wait from which a thread is a link.
const IS_LINK: f64 = 0.2;
/// Links at most.
const MOST: usize = 8;
/// Columns of its lines.
const COLUMNS: usize = WIDTH - 27;

/// A place of a thread's time: what for and where, and the number of the lock, if it is one's.
type Spot = (Place, Option<usize>);

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
    names: HashMap<u32, Arc<str>>,
}

/// A thread that others wait for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) tid: u32,
    comm: Arc<str>,
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
    pub(crate) fn add(
        &mut self,
        tid: u32,
        spot: &(Place, Option<usize>),
        ns: u64,
        ender: Option<(u32, &Arc<str>)>,
    ) {
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

    /// The chain behind all waits in a spot. `holders`: of a lock by its number, threads with the time that they held it, ns.
    pub(crate) fn chain(
        &self,
        spot: &Spot,
        holders: impl Fn(usize) -> Vec<(u32, u64)>,
        name: impl Fn(usize) -> String,
    ) -> Option<Chain> {
        let mut enders: HashMap<u32, u64> = HashMap::new();
        let all = self.parts.values().filter_map(|parts| parts.get(spot));
        let mut waited_ns = 0;
        for part in all {
            waited_ns += part.ns;
            for (tid, ns) in &part.enders {
                *enders.entry(*tid).or_default() += ns;
            }
        }
        let mut links: Vec<Link> = Vec::new();
        let mut at = spot.clone();
        let end = loop {
            let next = match at.1 {
                Some(lock) => largest(&holders(lock), None),
                None => largest(&enders.drain().collect::<Vec<_>>(), Some(waited_ns)),
            };
            let Some((tid, share)) = next else {
                break End::Unknown;
            };
            if links.iter().any(|link| link.tid == tid) {
                break End::Cycle;
            }
            let did = self.most(tid);
            links.push(Link {
                tid,
                comm: self.names.get(&tid).cloned().unwrap_or_default(),
                share,
                did: did.map(|(spot, share)| (spot.0.clone(), share, spot.1)),
            });
            let Some((spot, _)) = did else {
                break End::Outside;
            };
            if is_root(spot.0.0) {
                break End::Root;
            }
            if links.len() >= MOST {
                break End::Long;
            }
            at = spot.clone();
            let part = &self.parts[&tid][spot];
            (enders, waited_ns) = (part.enders.clone(), part.ns);
        };
        let names = links.iter().map(|link| {
            let lock = link.did.as_ref().and_then(|(_, _, lock)| *lock);
            lock.map(&name).unwrap_or_default()
        });
        let locks = names.collect();
        (!links.is_empty()).then_some(Chain { links, end, locks })
    }

    /// The spot with most of a thread's time, and its share of that.
    fn most(&self, tid: u32) -> Option<(&Spot, f64)> {
        let parts = self.parts.get(&tid)?;
        let all: u64 = parts.values().map(|part| part.ns).sum();
        let most = parts.iter().max_by_key(|(spot, part)| (part.ns, *spot))?;
        Some((most.0, most.1.ns as f64 / all.max(1) as f64))
    }
}

/// The thread with most, and its share of `all`, or of their sum; `None`: nobody has a large part.
fn largest(threads: &[(u32, u64)], all: Option<u64>) -> Option<(u32, f64)> {
    let all = all.unwrap_or_else(|| threads.iter().map(|(_, ns)| ns).sum());
    let (tid, ns) = threads.iter().max_by_key(|(tid, ns)| (*ns, *tid))?;
    let share = *ns as f64 / all.max(1) as f64;
    (share >= IS_LINK).then_some((*tid, share))
}

/// Looks whether time of a kind is nobody else's doing.
pub(crate) fn is_root(kind: &str) -> bool {
    [
        ON_CPU,
        RUN_QUEUE,
        "sleep",
        "block-io",
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
            let who = format!(
                "{} {} {:.0}%",
                comm(&link.comm),
                link.tid,
                100.0 * link.share
            );
            parts.push(who);
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
            End::Outside => Some("(not looked at)".to_owned()),
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
        let last = self.links.last().filter(|_| self.end == End::Root)?;
        let ((kind, place), ..) = last.did.as_ref()?;
        let did = in_place(word(kind), place.as_deref());
        Some(format!("{} {}, {did}", comm(&last.comm), last.tid))
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        let link = |(link, lock): (&Link, &String)| {
            let did = link.did.as_ref();
            json!({
                "comm": &*link.comm,
                "tid": link.tid,
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
mod tests {
    use super::*;

    fn spot(kind: &'static str, place: &str, lock: Option<usize>) -> Spot {
        ((kind, Some(place.into())), lock)
    }

    fn said(threads: &Threads, spot: &Spot, holders: &[(u32, u64)]) -> (String, End) {
        let holders = |_| holders.to_vec();
        let chain = threads.chain(spot, holders, |_| "mutex a".into());
        let chain = chain.expect("a chain");
        (chain.remarks().join(""), chain.end)
    }

    /// Workers wait for the parser's pipe, it waits for a lock, whose holder waits for a disk.
    fn chained() -> Threads {
        let mut threads = Threads::default();
        let name = |name: &str| -> Arc<str> { name.into() };
        let pipe = spot("pipe", "ask", None);
        for worker in [10, 11] {
            threads.add(worker, &pipe, 100, Some((20, &name("parser"))));
        }
        threads.add(
            20,
            &spot("futex", "parse", Some(3)),
            70,
            Some((31, &name("x"))),
        );
        threads.add(20, &spot(ON_CPU, "parse", None), 30, None);
        threads.add(30, &spot("block-io", "flush", None), 80, None);
        threads.add(30, &spot(ON_CPU, "flush", None), 20, None);
        threads.learn(30, &name("refill"));
        threads
    }

    #[test]
    fn a_wait_is_followed_over_a_pipe_and_a_lock_to_a_disk() {
        let (said, end) = said(&chained(), &spot("pipe", "ask", None), &[(30, 9), (31, 1)]);
        assert_eq!(end, End::Root);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            said,
            "root: parser 20 100% -> mutex a in parse 70% -> refill 30 90% -> block-io in flush 80%"
        );
    }

    #[test]
    fn chains_end_where_nobody_is_known_was_looked_at_or_comes_again() {
        let mut threads = chained();
        let pipe = spot("pipe", "ask", None);
        let end = |threads: &Threads, holders: &[(u32, u64)]| said(threads, &pipe, holders).1;
        assert_eq!(end(&threads, &[]), End::Unknown);
        assert_eq!(end(&threads, &[(99, 1)]), End::Outside);
        assert_eq!(end(&threads, &[(20, 1)]), End::Cycle);
        // Many have little each.
        let many: Vec<(u32, u64)> = (40..50).map(|tid| (tid, 1)).collect();
        assert_eq!(end(&threads, &many), End::Unknown);
        let futex = spot("futex", "wait", None);
        threads.add(30, &futex, 900, Some((20, &"parser".into())));
        assert_eq!(end(&threads, &[(30, 1)]), End::Cycle);
    }
}
