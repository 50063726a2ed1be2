//! A line of the account that is being added up.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hist::Histogram;
use profile::frame::Frame;
use profile::model::Sample;
use profile::rank::Rank;

use crate::why::enders::function;
use crate::why::line::Culprit;

/// A line that is being added up.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) ns: u64,
    pub(super) waits: u64,
    pub(super) lengths: Histogram,
    pub(super) whose: HashMap<u32, u64>,
    pub(super) threads: HashSet<u32>,
    pub(super) blames: HashMap<Culprit, u64>,
    /// Waits that the kernel accounts as ones for I/O and an interrupt ended: their time, ns, and their number.
    pub(super) io: (u64, u64),
    /// Time of sleeps before a lock is tried again, ns.
    pub(super) retried_ns: u64,
    /// Time by the number of the file or connection that it was for.
    pub(super) endpoints: HashMap<u64, u64>,
    /// Samples by function and process.
    pub(super) functions: HashMap<(Arc<str>, u32), u64>,
    /// Time of waits that may be for work, on stacks that do not reach their root, ns.
    pub(super) unclear_ns: u64,
    /// Time by stack: a stack that was seen again is in the same place.
    stacks: HashMap<[usize; 2], (u64, Stack)>,
}

/// Frames of the kernel, and of the program.
pub(super) type Stack = (Arc<[Frame]>, Arc<[Frame]>);

impl Draft {
    pub(super) fn add(&mut self, sample: &Sample, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
        *self.whose.entry(sample.task.tgid).or_default() += ns;
        self.threads.insert(sample.task.tid);
        let place = |frames: &Arc<[Frame]>| Arc::as_ptr(frames).cast::<Frame>() as usize;
        let stack = || (Arc::clone(&sample.kernel), Arc::clone(&sample.user));
        let key = [place(&sample.kernel), place(&sample.user)];
        let sum = self.stacks.entry(key).or_insert_with(|| (0, stack()));
        sum.0 += ns;
    }

    /// The functions that it went by in, the most first.
    pub(super) fn places(&self) -> Vec<(Arc<str>, u64)> {
        let mut places: HashMap<Arc<str>, u64> = HashMap::new();
        for (ns, (kernel, user)) in self.stacks.values() {
            if let Some(place) = function(kernel, user) {
                *places.entry(place).or_default() += ns;
            }
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.rank_by_key(|(place, ns)| (Reverse(*ns), Arc::clone(place)));
        places
    }

    /// The stack with most of it, in this function if one is given.
    pub(super) fn stack(&self, place: Option<&str>) -> Stack {
        let most = self.stacks.values().max_by_key(|(ns, (kernel, user))| {
            let is_there = place.is_some() && function(kernel, user).as_deref() == place;
            (is_there, *ns)
        });
        most.map(|(_, stack)| stack.clone()).unwrap_or_default()
    }
}
