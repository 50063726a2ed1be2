//! A line of the account: time of one kind, and who is to blame for it.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hist::Histogram;
use profile::frame::Frame;
use profile::rank::Rank;

use crate::biolatency::Phase;
use crate::offcputime::{Endpoint, SLEEP};
use crate::why::chains::Chain;
pub(crate) use crate::why::kinds::{
    FOR_CHILD, IDLE, LOST, ON_CPU, Program, RESIDUAL, RUN_QUEUE, UNSEEN,
};
use crate::why::lock::Lock;

/// Somebody, or something, that time is due to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Culprit {
    /// It ended waits, in a function of its own; or it ran meanwhile.
    Program(Program, Option<Arc<str>>),
    /// A device's or a timer's interrupt ended waits.
    Interrupt,
    /// The waits are not over.
    Nobody,
    /// The waits are over, and their end was not seen.
    Unseen,
    /// Waits that an interrupt ended were longer than the requests that they were for.
    HeldBack,
    /// Requests were in a phase, to a disk.
    Disk(Arc<str>, Phase),
    /// So many processes of a name ran meanwhile, or ended waits; the first of them, and the function in which they ended more than half.
    Crowd(Program, usize, Option<Arc<str>>),
    /// A function used the CPU, in all processes of a name.
    Function(Arc<str>, Arc<str>),
}

/// So many processes of a name are told of together.
const CROWD: usize = 3;

impl Culprit {
    /// Tells if nobody can be named for it: tasks that ran too long ago to be remembered, and ends that were not seen.
    pub(crate) fn is_nameless(&self) -> bool {
        matches!(self, Self::Program((_, 0), _) | Self::Unseen)
    }
}

/// Processes of a name that are to blame.
#[derive(Default)]
struct Crowd<'a> {
    /// The one that comes first.
    first: Option<u32>,
    processes: HashSet<u32>,
    /// Parts by function.
    places: HashMap<&'a Option<Arc<str>>, u64>,
}

impl Crowd<'_> {
    fn value(&self) -> u64 {
        self.places.values().sum()
    }

    fn blame(self, name: &Arc<str>) -> Blame {
        let value = self.value();
        let mut places = self.places.iter();
        let place = places.find(|(_, part)| **part > value / 2);
        let place = place.and_then(|(place, _)| (*place).clone());
        let first = (Arc::clone(name), self.first.unwrap_or(0));
        Blame {
            culprit: Culprit::Crowd(first, self.processes.len(), place),
            value,
        }
    }
}

/// A database that was locked at the end of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Locked {
    pub(crate) by: Program,
    pub(crate) path: String,
    /// The process waits for another of its own connections.
    pub(crate) is_own: bool,
}

/// Processes that used a disk.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    pub(crate) disk: Arc<str>,
    /// Time of their requests in its device, ns; the most first.
    pub(crate) users: Vec<(Program, u64)>,
}

/// Its part of a line.
#[derive(Clone, Debug)]
pub(crate) struct Blame {
    pub(crate) culprit: Culprit,
    /// Time, ns; of functions, samples.
    pub(crate) value: u64,
}

/// Time that threads spent for one reason in one place.
#[derive(Default)]
pub(crate) struct Line {
    /// A reason of offcputime's, or a word of this module's.
    pub(crate) kind: &'static str,
    /// The program's function that waits; of several that wait for a lock, the one that waits longest.
    pub(crate) place: Option<Arc<str>>,
    pub(crate) ns: i64,
    /// Number of waits; 0: it is no wait.
    pub(crate) waits: u64,
    /// Their lengths.
    pub(crate) lengths: Histogram,
    /// The most first.
    pub(crate) whose: Vec<(Program, u64)>,
    /// The most first, and last what nobody can be named for.
    pub(crate) blames: Vec<Blame>,
    /// The lock that it is for, where that is known.
    pub(crate) lock: Option<Lock>,
    /// Nobody can tell whether its threads wait for each other or for work: neither by the lock, nor by stacks that reach their roots.
    pub(crate) is_unclear: bool,
    /// Most of it is sleep before a lock is tried again, as by SQLite: nobody ends such a wait.
    pub(crate) is_retried: bool,
    /// The database that it tries to lock, and who has it.
    pub(crate) locked: Option<Locked>,
    /// From whom it waits for to the root.
    pub(crate) chain: Option<Chain>,
    /// Files and connections that it waits for, and time, ns; the most first.
    pub(crate) endpoints: Vec<(Endpoint, u64)>,
    /// Functions that threads wait in for a lock, or with nothing to do, and time, ns; the most first.
    pub(crate) places: Vec<(Arc<str>, u64)>,
    /// Processes that used the disk which it waits for.
    pub(crate) users: Option<Users>,
    /// Sum of all blames that there are, in their unit.
    pub(crate) blamed: u64,
    /// The stack with most of it, of the kernel and of the program.
    pub(crate) stack: (Arc<[Frame]>, Arc<[Frame]>),
}

impl Line {
    /// Tells if it is time that the program lost or spent: neither idleness, nor sleep by choice, nor what was not seen.
    pub(crate) fn is_busy(&self) -> bool {
        ![IDLE, SLEEP, UNSEEN, LOST, RESIDUAL].contains(&self.kind)
    }

    /// The length that one wait of a hundred exceeds, ns, within 3.2 %; `None`: it is no wait, or not known.
    pub(crate) fn p99_ns(&self) -> Option<u64> {
        p99_ns(&self.lengths)
    }

    /// Its time, 0 where it is negative.
    pub(crate) fn time_ns(&self) -> u64 {
        self.ns.try_into().unwrap_or(0)
    }

    /// The culprit with most of it, and its share, from 0 to 1. A program is one, with the function in which it has most.
    pub(crate) fn first_blame(&self) -> Option<(&Culprit, f64)> {
        let whole = |culprit: &Culprit| -> u64 {
            let same = self
                .blames
                .iter()
                .filter(|blame| match (&blame.culprit, culprit) {
                    (Culprit::Program(a, _), Culprit::Program(b, _)) => a == b,
                    (a, b) => a == b,
                });
            same.map(|blame| blame.value).sum()
        };
        let named = self
            .blames
            .iter()
            .filter(|blame| !blame.culprit.is_nameless());
        let sums = named.map(|blame| (&blame.culprit, whole(&blame.culprit)));
        // The first one of equals has more in one function.
        let first = sums.reduce(|most, one| if one.1 > most.1 { one } else { most });
        let (culprit, value) = first?;
        Some((culprit, value as f64 / self.blamed.max(1) as f64))
    }

    /// The same as people are told it: many processes of one name are one.
    pub(crate) fn first_told(&self) -> Option<(Culprit, f64)> {
        let (first, share) = self.first_blame()?;
        let told = self.told();
        let crowd = told.iter().find(|blame| !blame.culprit.is_nameless());
        let crowd = crowd.filter(|blame| matches!(blame.culprit, Culprit::Crowd(..)));
        let crowd = crowd.map(|blame| (blame.culprit.clone(), self.share(blame)));
        let larger = crowd.filter(|(_, of_crowd)| *of_crowd >= share);
        Some(larger.unwrap_or_else(|| (first.clone(), share)))
    }

    /// Its blames as people are told them: many processes of one name that come first together are one culprit.
    pub(crate) fn told(&self) -> Vec<Blame> {
        let mut crowds: HashMap<&Arc<str>, Crowd> = HashMap::new();
        // The most comes first.
        for blame in &self.blames {
            let Culprit::Program((name, tgid), place) = &blame.culprit else {
                continue;
            };
            let crowd = crowds.entry(name).or_default();
            crowd.first.get_or_insert(*tgid);
            crowd.processes.insert(*tgid);
            *crowd.places.entry(place).or_default() += blame.value;
        }
        let first = self.blames.first().map_or(0, |blame| blame.value);
        crowds.retain(|name, crowd| {
            !name.is_empty() && crowd.processes.len() >= CROWD && crowd.value() >= first
        });
        let alone = self.blames.iter().filter(|blame| match &blame.culprit {
            Culprit::Program((name, _), _) => !crowds.contains_key(name),
            _ => true,
        });
        let mut told: Vec<Blame> = alone.cloned().collect();
        told.extend(crowds.into_iter().map(|(name, crowd)| crowd.blame(name)));
        told.rank_by_key(|blame| {
            let order = (blame.culprit.is_nameless(), Reverse(blame.value));
            (order, blame.culprit.clone())
        });
        told
    }

    /// Share of it that nobody can be named for, from 0 to 1.
    pub(crate) fn nameless(&self) -> f64 {
        let nameless = self
            .blames
            .iter()
            .filter(|blame| blame.culprit.is_nameless());
        let shares = nameless.map(|blame| self.share(blame));
        shares.sum()
    }

    /// A culprit's share of it, from 0 to 1.
    pub(crate) fn share(&self, blame: &Blame) -> f64 {
        blame.value as f64 / self.blamed.max(1) as f64
    }
}

/// The same of lengths.
pub(crate) fn p99_ns(lengths: &Histogram) -> Option<u64> {
    lengths.buckets().next()?;
    Some(match lengths.count() {
        1 => lengths.sum(),
        _ => lengths.percentile(99.0),
    })
}
