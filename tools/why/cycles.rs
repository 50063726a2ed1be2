//! Work cycles: how long threads are at work from home to home, and where the slowest spend their time against all others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hist::Histogram;
use profile::rank::Rank;
use profile::reasons;

use crate::offcputime::Endpoint;
use crate::offcputime::cycles::Found;
use crate::offcputime::pieces::{Cycle, Pieces, Spot, Time, spot};
use crate::why::drafts::{self, Drafts};
use crate::why::kinds::{At, ON_CPU, Program, RUN_QUEUE};
use crate::why::ran::{self, Functions};

/// Pieces of work that have something in common.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub(crate) count: f64,
    /// Time that they took together, ns.
    pub(crate) ns: f64,
}

impl Group {
    /// The part that one of them has of some time, ns.
    pub(crate) fn mean_ns(self, ns: f64) -> u64 {
        (ns / self.count.max(f64::MIN_POSITIVE)) as u64
    }

    fn add(&mut self, count: f64, ns: f64) {
        self.count += count;
        self.ns += ns;
    }
}

/// Time of one line in all pieces of work.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) at: At,
    /// Time in the slowest, and in the others, ns.
    pub(crate) slow_ns: f64,
    pub(crate) rest_ns: f64,
    /// The file or connection that most of the slowest's was for, and how much of both times.
    pub(crate) endpoint: Option<(Endpoint, [f64; 2])>,
}

impl Part {
    /// The shares of the times that its file or connection has, from 0 to 1.
    pub(crate) fn shares(&self) -> Option<(&Endpoint, [f64; 2])> {
        let (endpoint, [slow_ns, rest_ns]) = self.endpoint.as_ref()?;
        let share = |ns: f64, of: f64| if of > 0.0 { ns / of } else { 0.0 };
        let shares = [share(*slow_ns, self.slow_ns), share(*rest_ns, self.rest_ns)];
        Some((endpoint, shares))
    }
}

/// One of the slowest.
#[derive(Clone, Debug)]
pub(crate) struct Exemplar {
    /// `CLOCK_MONOTONIC`.
    pub(crate) begin_ns: u64,
    pub(crate) ns: u64,
    pub(crate) thread: Program,
    pub(crate) tgid: u32,
    /// The most first, each with the file or connection that half of it or more was for.
    pub(crate) parts: Vec<(At, u64, Option<Endpoint>)>,
}

/// Threads of a program that wait for work in one place.
pub(crate) struct Home {
    /// The first thread's name, and the process's ID if it is one.
    pub(crate) program: Program,
    pub(crate) processes: usize,
    pub(crate) kind: &'static str,
    pub(crate) place: Option<Arc<str>>,
    pub(crate) lengths: Histogram,
}

/// Everything on work cycles.
pub(crate) struct Cycles {
    /// The share of the cycles that are the slowest, percent.
    pub(crate) percent: f64,
    /// Those with enough cycles to compare come first, and of these the one with most time at work; all that follows is of the first.
    pub(crate) homes: Vec<Home>,
    /// The functions by which they are told, in words, where homes do not.
    pub(crate) marked: Option<Arc<str>>,
    pub(crate) slow: Group,
    pub(crate) rest: Group,
    /// Those by which the slowest differ most first.
    pub(crate) parts: Vec<Part>,
    pub(crate) exemplars: Vec<Exemplar>,
    /// Pieces of any home that an edge of a window, or their thread's end, has cut.
    pub(crate) cut: u64,
    /// Time that was looked at, ns.
    pub(crate) looked_ns: u64,
    /// Not all of the time was.
    pub(crate) are_in_windows: bool,
}

/// Homes of one name.
type Name = (Arc<str>, &'static str, Option<Arc<str>>);

impl Cycles {
    /// Cycles of a home in a second.
    pub(crate) fn rate(&self, home: &Home) -> f64 {
        home.lengths.count() as f64 * 1e9 / self.looked_ns.max(1) as f64
    }

    pub(crate) fn of(
        (found, percent, functions): (&Found, f64, &Functions),
        (waits, drafts): (&drafts::Found<'_>, &Drafts),
    ) -> Self {
        let looked_ns = waits.window.ns() as f64 * waits.looked.unwrap_or(1.0);
        let names = drafts.names();
        let mut merged: BTreeMap<Name, (Pieces, Vec<u32>)> = BTreeMap::new();
        for (home, pieces) in &found.homes {
            let program = names.get(&home.tgid).cloned().unwrap_or_default();
            let name = (program, home.kind, home.place.clone());
            let (sums, tgids) = merged.entry(name).or_default();
            sums.merge(pieces);
            tgids.push(home.tgid);
        }
        let mut homes: Vec<_> = merged.into_iter().collect();
        homes.retain(|(_, (pieces, _))| pieces.histogram.count() > 0);
        homes.rank_by_key(|(name, (pieces, _))| {
            let lengths = &pieces.histogram;
            // The slowest of fewer are no group.
            let are_few = (lengths.count() as f64) < 100.0 / percent;
            (are_few, Reverse(lengths.sum()), name.clone())
        });
        let mut cycles = Self {
            percent,
            homes: Vec::new(),
            marked: found.marked.clone(),
            slow: Group::default(),
            rest: Group::default(),
            parts: Vec::new(),
            exemplars: Vec::new(),
            cut: found.cut(),
            looked_ns: looked_ns as u64,
            are_in_windows: waits.looked.is_some(),
        };
        if let Some((_, (pieces, _))) = homes.first() {
            cycles.compare(pieces, &Places::of(waits, drafts, functions));
        }
        cycles.homes = homes.into_iter().map(home).collect();
        cycles
    }

    /// Compares the slowest with the others. Those of one bucket took about the same time: where some of them are the slowest, each is
    /// in part.
    fn compare(&mut self, pieces: &Pieces, places: &Places<'_>) {
        let count = pieces.histogram.count() as f64;
        let mut left = (count * self.percent / 100.0).ceil();
        let mut sums: HashMap<At, [f64; 2]> = HashMap::new();
        let mut samples: HashMap<At, [f64; 2]> = HashMap::new();
        let mut ends: HashMap<At, HashMap<Endpoint, [f64; 2]>> = HashMap::new();
        for length in pieces.lengths.values().rev() {
            let of_slow = (left / length.count as f64).clamp(0.0, 1.0);
            left -= of_slow * length.count as f64;
            let shares = [of_slow, 1.0 - of_slow];
            for (group, share) in [&mut self.slow, &mut self.rest].into_iter().zip(shares) {
                group.add(share * length.count as f64, share * length.ns as f64);
            }
            let parts = places.parts(length.ns, length.waits.iter());
            for (at, ns) in parts.lines {
                add(sums.entry(at).or_default(), shares, ns);
            }
            for (at, endpoints) in parts.endpoints {
                let ends = ends.entry(at).or_default();
                for (endpoint, ns) in endpoints {
                    add(ends.entry(endpoint).or_default(), shares, ns);
                }
            }
            for (ran, count) in &length.samples {
                let sum = samples.entry(places.functions.at(ran)).or_default();
                add(sum, shares, *count);
            }
        }
        ran::divide(&mut sums, &samples);
        self.exemplars = pieces
            .longest
            .iter()
            .map(|cycle| exemplar(cycle, places))
            .collect();
        let part = |(at, [slow_ns, rest_ns]): (At, [f64; 2])| Part {
            endpoint: ends.remove(&at).and_then(largest),
            at,
            slow_ns,
            rest_ns,
        };
        self.parts = sums.into_iter().map(part).collect();
        let (slow, rest) = (self.slow, self.rest);
        self.parts.rank_by_key(|part| {
            let more = slow.mean_ns(part.slow_ns);
            let less = rest.mean_ns(part.rest_ns);
            (Reverse(more.abs_diff(less)), part.at.clone())
        });
    }
}

/// Adds to the sums of both groups what each has of it.
fn add(sums: &mut [f64; 2], shares: [f64; 2], value: u64) {
    for (sum, share) in sums.iter_mut().zip(shares) {
        *sum += share * value as f64;
    }
}

/// The one with most of the slowest's time.
fn largest(ends: HashMap<Endpoint, [f64; 2]>) -> Option<(Endpoint, [f64; 2])> {
    let ends = ends.into_iter().filter(|(_, [slow_ns, _])| *slow_ns > 0.0);
    ends.max_by(|(one, [a, _]), (other, [b, _])| a.total_cmp(b).then_with(|| other.cmp(one)))
}

fn home(((program, kind, place), (pieces, mut tgids)): (Name, (Pieces, Vec<u32>))) -> Home {
    tgids.sort_unstable();
    Home {
        program: (program, if tgids.len() == 1 { tgids[0] } else { 0 }),
        processes: tgids.len(),
        kind,
        place,
        lengths: pieces.histogram,
    }
}

fn exemplar(cycle: &Cycle, places: &Places<'_>) -> Exemplar {
    let steps = cycle.steps.iter().map(|(spot, time)| (spot, time));
    let Parts {
        mut lines,
        mut endpoints,
    } = places.parts(cycle.ns, steps);
    let cpu_ns = lines.remove(&At::of(ON_CPU)).into_iter();
    let mut parts: Vec<_> = lines
        .into_iter()
        .map(|(at, ns)| {
            let ends = endpoints.remove(&at).into_iter().flatten();
            let most = ends.max_by_key(|(endpoint, ns)| (*ns, Reverse(endpoint.clone())));
            let most = most.filter(|(_, of_endpoint_ns)| *of_endpoint_ns >= ns / 2);
            (at, ns, most.map(|(endpoint, _)| endpoint))
        })
        .collect();
    let ran = cpu_ns.flat_map(|ns| places.functions.divide(ns, &cycle.samples));
    parts.extend(ran.map(|(at, ns)| (at, ns, None)));
    parts.rank_by_key(|(at, ns, _)| (Reverse(*ns), at.clone()));
    Exemplar {
        begin_ns: cycle.begin_ns,
        ns: cycle.ns,
        thread: (Arc::clone(&cycle.comm), cycle.tid),
        tgid: cycle.tgid,
        parts,
    }
}

/// Lines of the table by the place that threads wait in, or run in.
struct Places<'a> {
    /// By spots that are for no endpoint: these say nothing of lines.
    all: HashMap<Spot, Place>,
    /// Files and connections by their numbers.
    endpoints: &'a HashMap<u64, Endpoint>,
    functions: &'a Functions,
}

/// Time by line, and of each by the file or connection that it was for.
#[derive(Default)]
struct Parts {
    lines: HashMap<At, u64>,
    endpoints: HashMap<At, HashMap<Endpoint, u64>>,
}

impl Parts {
    fn add(&mut self, at: &At, ns: u64, endpoint: Option<&Endpoint>) {
        *self.lines.entry(at.clone()).or_default() += ns;
        if let Some(endpoint) = endpoint {
            let ends = self.endpoints.entry(at.clone()).or_default();
            *ends.entry(endpoint.clone()).or_default() += ns;
        }
    }
}

#[derive(Default)]
struct Place {
    /// Time that is no wait for a CPU whatever the wait was for.
    is_quota: bool,
    /// The lines that it is in, and their parts.
    lines: Vec<(At, u64)>,
}

impl<'a> Places<'a> {
    fn of(found: &drafts::Found<'a>, drafts: &Drafts, functions: &'a Functions) -> Self {
        let mut all: HashMap<Spot, Place> = HashMap::new();
        let of_locks = drafts.places_of_locks();
        for (row, sample) in found.waits.rows.iter().zip(&found.off.samples) {
            let place = all.entry(spot(row).without_endpoint()).or_default();
            let [ns, queue_ns] = reasons::parts(found.off, sample.reason, &sample.values);
            place.is_quota |= queue_ns == 0 && row.runqueue_ns > 0;
            for (at, ns) in drafts.shares(sample, ns, &of_locks) {
                match place.lines.iter_mut().find(|(same, _)| *same == at) {
                    Some((_, sum)) => *sum = sum.saturating_add(ns),
                    None => place.lines.push((at, ns)),
                }
            }
        }
        Self {
            all,
            endpoints: &found.waits.details.endpoints,
            functions,
        }
    }

    /// Time of a piece of work, or of several, that took `ns` together, by line; what is no wait is on a CPU.
    fn parts<'b>(&self, ns: u64, waits: impl Iterator<Item = (&'b Spot, &'b Time)>) -> Parts {
        let mut parts = Parts::default();
        let mut cpu_ns = ns;
        for (spot, time) in waits {
            cpu_ns = cpu_ns.saturating_sub(time.ns());
            let place = self.all.get(&spot.without_endpoint());
            let (wait_ns, queue_ns) = match place {
                Some(place) if place.is_quota => (time.ns(), 0),
                _ => (time.blocked_ns, time.runqueue_ns),
            };
            if queue_ns > 0 {
                parts.add(&At::of(RUN_QUEUE), queue_ns, None);
            }
            if wait_ns == 0 {
                continue;
            }
            let lines = place.map_or(&[][..], |place| &place.lines);
            let all: u128 = lines.iter().map(|(_, part)| u128::from(*part)).sum();
            let endpoint = self.endpoints.get(&spot.endpoint);
            let mut left = wait_ns;
            for (at, part) in lines {
                let share = u128::from(wait_ns) * u128::from(*part) / all.max(1);
                let share = u64::try_from(share).unwrap_or(left).min(left);
                left -= share;
                parts.add(at, share, endpoint);
            }
            // Fractions are lost; a place that no row has is in none.
            if left > 0 {
                let other = At::of("other");
                let at = lines.first().map_or(&other, |(at, _)| at);
                parts.add(at, left, endpoint);
            }
        }
        if cpu_ns > 0 {
            parts.add(&At::of(ON_CPU), cpu_ns, None);
        }
        parts
    }
}

#[cfg(test)]
#[path = "cycles_tests.rs"]
mod tests;
