//! Lines of the account while they are added up.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use hist::Histogram;
use host::clock::Edges;
use host::task::comm_of;
use host::waits::Reason;
use profile::model::{Profile, Sample, StackEnd, Task};
use profile::rank::Rank;
use profile::reasons;

use crate::offcputime::{Details, Endpoint, GIL, Harvest, Lengths, Row, SLEEP, THROTTLED, cycles};
use crate::runqlat::Interval;
use crate::why::chains::{self, Chain, Holders, Threads};
use crate::why::disks::{FOR_DISKS, MOST_SCALE, Requests};
use crate::why::draft::Draft;
use crate::why::enders::{culprit, ender, function};
use crate::why::kinds::{At, Place, Spot, line_of};
use crate::why::line::{Blame, Culprit, IDLE, Line, ON_CPU, Program, RUN_QUEUE};
use crate::why::locks::{Seen, Split};
use crate::why::order;
use crate::why::ran::Functions;

/// Findings of the engines in one window.
pub(crate) struct Found<'a> {
    /// Waits.
    pub(crate) off: &'a Profile,
    /// Samples on CPUs.
    pub(crate) on: &'a Profile,
    /// Sums of all time, and quotas.
    pub(crate) waits: &'a Harvest,
    /// Requests to disks, where those were looked at, and by how much their time is to be multiplied.
    pub(crate) disks: Option<(&'a Requests, f64)>,
    /// Locks, where those were looked at.
    pub(crate) locks: Option<Seen<'a>>,
    /// Pieces of work, the share of them that are the slowest, in percent, and the functions that they ran in, if they were asked for.
    pub(crate) cycles: Option<(&'a cycles::Found, f64, &'a Functions)>,
    /// The kernel's list of locks of files.
    pub(crate) file_locks: &'a str,
    /// Neighbours.
    pub(crate) queue: &'a Interval,
    /// Begin and end.
    pub(crate) window: Edges,
    /// Share of the time that was looked at, where that is not all.
    pub(crate) looked: Option<f64>,
}

/// All lines of an account.
#[derive(Default)]
pub(super) struct Drafts {
    by_place: HashMap<Spot, Draft>,
    split: Split,
    threads: Threads,
    /// Names of processes, and time under each, ns: of their first threads where those were seen.
    names: HashMap<u32, HashMap<(bool, Arc<str>), u64>>,
}

impl Drafts {
    /// None yet; waits for locks will be told apart.
    pub(super) fn new(split: Split) -> Self {
        Self {
            split,
            ..Self::default()
        }
    }

    /// A process that runs another program has that one's name.
    fn learn(&mut self, task: &Task, ns: u64) {
        let name = (task.tid == task.tgid, Arc::clone(&task.comm));
        let names = self.names.entry(task.tgid).or_default();
        *names.entry(name).or_default() += ns;
    }

    /// Names of processes by their IDs.
    pub(super) fn names(&self) -> HashMap<u32, Arc<str>> {
        let name = |(tgid, names): (&u32, &HashMap<(bool, Arc<str>), u64>)| {
            let order = |((is_first, name), ns): &(&(bool, Arc<str>), &u64)| {
                (*is_first, **ns, Arc::clone(name))
            };
            let ((is_first, name), _) = names.iter().max_by_key(order)?;
            // Another thread may have a name of its own.
            let of_process = if *is_first { None } else { comm_of(*tgid) };
            Some((*tgid, of_process.unwrap_or_else(|| Arc::clone(name))))
        };
        self.names.iter().filter_map(name).collect()
    }

    /// Times in the run queue after waits for something else, whatever these were.
    pub(super) fn add_queue_lengths(&mut self, lengths: &Lengths) {
        let spot = ((RUN_QUEUE, None), None);
        let queue = self.by_place.entry(spot).or_default();
        lengths.add_to(&mut queue.lengths);
    }

    /// `row` is what the sample was made of.
    pub(super) fn add_wait(&mut self, profile: &Profile, sample: &Sample, row: &Row) {
        let [ns, queue_ns] = reasons::parts(profile, sample.reason, &sample.values);
        self.learn(&sample.task, ns + queue_ns);
        self.threads.learn(sample.task.tid, &sample.task.comm);
        if queue_ns > 0 {
            let spot = ((RUN_QUEUE, None), None);
            self.threads.add(sample.task.tid, &spot, queue_ns, None);
            let queue = self.by_place.entry(((RUN_QUEUE, None), None)).or_default();
            queue.add(sample, queue_ns);
            queue.waits += sample.count;
            if ns == 0 {
                row.lengths.add_to(&mut queue.lengths);
            }
        }
        if ns == 0 {
            return;
        }
        let reason = sample.reason.unwrap_or("other");
        let key = place_of(sample);
        let culprit = culprit(sample, reason, row.is_open);
        // Quota comes back by the clock, and who wants Python's interpreter asks again by the clock.
        let is_retry = is_retry(sample, row);
        let is_by_clock = [THROTTLED, GIL].contains(&reason) || is_retry;
        let is_blamed = !sample.idle && !is_by_clock;
        let is_for_requests = culprit == Culprit::Interrupt && row.wait.is_accounted_io();
        // Nobody knows whether its thread comes back there.
        let is_cut = ![Some(StackEnd::Root), Some(StackEnd::LeftOut)].contains(&sample.user_end);
        let is_unclear = !sample.idle && is_cut && row.wait.may_be_idle();
        for part in self.split.divide(sample, &key, ns) {
            let (part_ns, count) = (part.ns, part.count);
            if !part.is_idle {
                self.threads
                    .add(sample.task.tid, &part.spot, part_ns, ender(sample, reason));
            }
            let draft = self.by_place.entry(line_of(&part.spot)).or_default();
            draft.add(sample, part_ns);
            draft.waits += count;
            if count > 0 {
                row.lengths.add_to(&mut draft.lengths);
            }
            if part.is_idle {
                continue;
            }
            if is_unclear {
                draft.unclear_ns += part_ns;
            }
            if row.endpoint != 0 {
                *draft.endpoints.entry(row.endpoint).or_default() += part_ns;
            }
            if is_retry {
                draft.retried_ns += part_ns;
            }
            if is_for_requests {
                draft.io = (draft.io.0 + part_ns, draft.io.1 + count);
            }
            if is_blamed {
                *draft.blames.entry(culprit.clone()).or_default() += part_ns;
            }
        }
    }

    /// The function in which most of each lock's time went by, which its line has for a place.
    pub(super) fn places_of_locks(&self) -> HashMap<Spot, Arc<str>> {
        let locks = self.by_place.iter().filter(|((_, lock), _)| lock.is_some());
        let first = |(spot, draft): (&Spot, &Draft)| {
            Some((spot.clone(), draft.places().first()?.0.clone()))
        };
        locks.filter_map(first).collect()
    }

    /// The lines that a sample's time `ns` is in, that for a CPU not counted, with their parts of it. `of_locks` are all locks' places.
    pub(super) fn shares(
        &self,
        sample: &Sample,
        ns: u64,
        of_locks: &HashMap<Spot, Arc<str>>,
    ) -> Vec<(At, u64)> {
        let own = place_of(sample);
        let parts = self.split.divide(sample, &own, ns).into_iter();
        let at = |spot: &Spot| {
            let ((kind, place), lock) = spot;
            At {
                kind,
                place: of_locks.get(&line_of(spot)).or(place.as_ref()).cloned(),
                lock: lock.map(|number| self.split.name(number)),
            }
        };
        parts.map(|part| (at(&part.spot), part.ns)).collect()
    }

    pub(super) fn add_cpu_time(&mut self, profile: &Profile, oncpu_ns: u64) {
        let all: u64 = profile.samples.iter().map(Sample::total).sum();
        let draft = self.by_place.entry(((ON_CPU, None), None)).or_default();
        for sample in &profile.samples {
            let value = sample.total();
            draft.add(sample, value);
            let function = function(&sample.kernel, &sample.user);
            let function = function.unwrap_or("[no stack]".into());
            let spot = ((ON_CPU, Some(Arc::clone(&function))), None);
            let ns = u128::from(oncpu_ns) * u128::from(value) / u128::from(all.max(1));
            let ns = u64::try_from(ns).unwrap_or(u64::MAX);
            self.threads.add(sample.task.tid, &spot, ns, None);
            self.threads.learn(sample.task.tid, &sample.task.comm);
            let program = sample.task.tgid;
            *draft.functions.entry((function, program)).or_default() += value;
        }
        // Samples say whose it is, and where; how long it is the kernel's switches say.
        for part in draft.whose.values_mut() {
            let ns = u128::from(*part) * u128::from(oncpu_ns) / u128::from(all.max(1));
            *part = u64::try_from(ns).unwrap_or(u64::MAX);
        }
        draft.ns = oncpu_ns;
        for sample in &profile.samples {
            let ns = u128::from(oncpu_ns) * u128::from(sample.total()) / u128::from(all.max(1));
            self.learn(&sample.task, u64::try_from(ns).unwrap_or(u64::MAX));
        }
    }

    pub(super) fn lines(mut self, found: &Found<'_>) -> Vec<Line> {
        for one in found.queue.culprits.iter().filter(|one| one.tid != 0) {
            let task = Task::new(Arc::clone(&one.comm), one.tgid, one.tid);
            self.learn(&task, one.caused_ns);
        }
        let names = &self.names();
        let (split, threads) = (&self.split, &self.threads);
        let drafts = self.by_place.into_iter();
        let mut lines: Vec<Line> = drafts
            .map(|((at, number), mut draft)| {
                let (kind, place) = at;
                let lock = number.and_then(|number| split.lock(number, kind));
                let may_be_for_work = lock.as_ref().is_none_or(|lock| lock.is_unclear);
                let places = match kind == IDLE || number.is_some() {
                    true => draft.places(),
                    false => Vec::new(),
                };
                let first = places.first().filter(|_| number.is_some());
                let place = place.or_else(|| first.map(|(place, _)| Arc::clone(place)));
                let stack = draft.stack(first.and(place.as_deref()));
                let chain = chain(threads, split, &((kind, place.clone()), number), found);
                let mut lengths = mem::take(&mut draft.lengths);
                // None is longer than all together.
                lengths.add_exact(draft.waits, draft.ns, draft.ns);
                if found.looked.is_some() {
                    // Windows cut those that outlast them.
                    lengths = Histogram::default();
                }
                let requests = found.disks.filter(|_| FOR_DISKS.contains(&kind));
                if let Some((requests, scale)) = requests {
                    blame_disks(&mut draft, requests, scale);
                }
                let mut blames = match kind {
                    RUN_QUEUE => ranked(neighbours(found.queue), names),
                    ON_CPU => ranked(functions(draft.functions, names), names),
                    _ => ranked(draft.blames, names),
                };
                if found.looked.is_some() {
                    // Most waits outlast the window that saw them.
                    blames.retain(|blame| blame.culprit != Culprit::Nobody);
                }
                Line {
                    kind,
                    place,
                    is_retried: draft.retried_ns > draft.ns / 2,
                    locked: None,
                    is_unclear: may_be_for_work && draft.unclear_ns > draft.ns / 2,
                    ns: draft.ns.cast_signed(),
                    waits: draft.waits,
                    lengths,
                    whose: whose(&draft.whose, names),
                    lock,
                    chain,
                    endpoints: endpoints(&draft.endpoints, &found.waits.details),
                    places,
                    users: requests.and_then(|(requests, _)| requests.behind(&blames)),
                    blamed: blames.iter().map(|blame| blame.value).sum(),
                    blames,
                    stack,
                }
            })
            .collect();
        order::rank(&mut lines);
        lines
    }
}

/// Looks whether a thread sleeps before it tries again for a lock, as SQLite does: a clock ends that.
fn is_retry(sample: &Sample, row: &Row) -> bool {
    row.wait.reason() == Reason::Sleep && sample.reason != Some(SLEEP)
}

/// Blames disks for time that an interrupt ended. `scale`: by how much requests' time is to be multiplied.
fn blame_disks(draft: &mut Draft, requests: &Requests, scale: f64) {
    let times = scale * draft.threads.len() as f64;
    let held_back = match scale <= MOST_SCALE {
        true => requests.held_back(draft.io, times),
        false => 0,
    };
    requests.divide(&mut draft.blames, &draft.whose, held_back);
}

/// Kind and function of a wait.
fn place_of(sample: &Sample) -> Place {
    let reason = sample.reason.unwrap_or("other");
    match (sample.idle, reason) {
        (true, _) => (IDLE, None),
        (_, THROTTLED) => (THROTTLED, None),
        _ => (reason, function(&sample.kernel, &sample.user)),
    }
}

/// The chain behind waits of a kind that others end.
fn chain(threads: &Threads, split: &Split, spot: &Spot, found: &Found<'_>) -> Option<Chain> {
    let (kind, _) = spot.0;
    let is_others = !chains::is_root(kind) && ![IDLE, THROTTLED].contains(&kind);
    let chain = is_others.then(|| threads.chain(spot, split, found.window.ns()))?;
    chain.filter(Chain::is_long)
}

fn whose(times: &HashMap<u32, u64>, names: &HashMap<u32, Arc<str>>) -> Vec<(Program, u64)> {
    let mut whose: Vec<(Program, u64)> = times
        .iter()
        .map(|(tgid, ns)| ((names.get(tgid).cloned().unwrap_or_default(), *tgid), *ns))
        .collect();
    whose.rank_by_key(|(program, ns)| (Reverse(*ns), program.clone()));
    whose
}

/// Those that are known, the most first. Several numbers may be of one name.
fn endpoints(times: &HashMap<u64, u64>, details: &Details) -> Vec<(Endpoint, u64)> {
    let mut sums: HashMap<&Endpoint, u64> = HashMap::new();
    for (number, ns) in times {
        if let Some(endpoint) = details.endpoints.get(number) {
            *sums.entry(endpoint).or_default() += ns;
        }
    }
    let mut most: Vec<_> = sums
        .into_iter()
        .map(|(one, ns)| (one.clone(), ns))
        .collect();
    most.rank_by_key(|(endpoint, ns)| (Reverse(*ns), endpoint.clone()));
    most
}

/// Culprits, the most first. Threads of a process are one, by its name where that is known.
fn ranked(
    values: impl IntoIterator<Item = (Culprit, u64)>,
    names: &HashMap<u32, Arc<str>>,
) -> Vec<Blame> {
    let mut sums: HashMap<Culprit, u64> = HashMap::new();
    for (mut culprit, value) in values {
        if let Culprit::Program((name, tgid), _) = &mut culprit
            && let Some(known) = names.get(tgid)
        {
            *name = Arc::clone(known);
        }
        let sum = sums.entry(culprit).or_default();
        *sum = sum.saturating_add(value);
    }
    let sums = sums.into_iter();
    let mut blames: Vec<Blame> = sums
        .map(|(culprit, value)| Blame { culprit, value })
        .collect();
    blames.rank_by_key(|blame| {
        let order = (blame.culprit.is_nameless(), Reverse(blame.value));
        (order, blame.culprit.clone())
    });
    blames
}

/// Functions, those of all processes of a name together.
fn functions(
    samples: HashMap<(Arc<str>, u32), u64>,
    names: &HashMap<u32, Arc<str>>,
) -> impl Iterator<Item = (Culprit, u64)> {
    samples.into_iter().map(|((function, tgid), value)| {
        let program = names.get(&tgid).cloned().unwrap_or_default();
        (Culprit::Function(function, program), value)
    })
}

/// Tasks that ran while others waited.
fn neighbours(queue: &Interval) -> impl Iterator<Item = (Culprit, u64)> {
    queue.culprits.iter().map(|one| {
        let program = (Arc::clone(&one.comm), one.tgid);
        (Culprit::Program(program, None), one.caused_ns)
    })
}
