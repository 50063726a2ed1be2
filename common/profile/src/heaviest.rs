//! Which stacks weigh most.

use std::collections::{BTreeSet, HashMap};

use crate::folded::Idle;
use crate::frame::Frame;
use crate::model::Sample;

/// Equal stacks of threads that have one name, added up.
#[derive(Debug)]
pub struct Heavy<'a> {
    /// One of the samples, for all that they share.
    pub sample: &'a Sample,
    /// Sums, as in [`Sample::values`].
    pub values: Vec<u64>,
    /// Intervals or samples behind them.
    pub count: u64,
    /// Threads that had this stack.
    pub tids: BTreeSet<u32>,
    /// Their processes.
    pub tgids: BTreeSet<u32>,
}

impl Heavy<'_> {
    /// Sum of all values.
    pub fn total(&self) -> u64 {
        let values = self.values.iter().copied();
        values.fold(0, u64::saturating_add)
    }
}

/// Stacks are the same when their names are: addresses and lines inside a function do not matter to people.
type Key<'a> = (&'a str, Option<&'static str>, bool, Vec<&'a str>);

/// Samples that a choice about idle ones leaves in view.
pub fn in_view(samples: &[Sample], idle: Idle) -> Vec<&Sample> {
    let is_in_view = |sample: &&Sample| match idle {
        Idle::Fold => !sample.idle,
        Idle::Show => true,
        Idle::Only => sample.idle,
    };
    samples.iter().filter(is_in_view).collect()
}

/// Adds up equal stacks, heaviest first. Stacks of the same weight keep the order that they came in.
pub fn heaviest<'a>(samples: &[&'a Sample]) -> Vec<Heavy<'a>> {
    let mut places: HashMap<Key<'a>, usize> = HashMap::new();
    let mut stacks: Vec<Heavy<'a>> = Vec::new();
    for &sample in samples {
        let place = *places.entry(key(sample)).or_insert_with(|| {
            stacks.push(Heavy {
                sample,
                values: vec![0; sample.values.len()],
                count: 0,
                tids: BTreeSet::new(),
                tgids: BTreeSet::new(),
            });
            stacks.len() - 1
        });
        let stack = &mut stacks[place];
        for (sum, value) in stack.values.iter_mut().zip(&sample.values) {
            *sum = sum.saturating_add(*value);
        }
        stack.count = stack.count.saturating_add(sample.count);
        stack.tids.insert(sample.task.tid);
        stack.tgids.insert(sample.task.tgid);
    }
    let name = |stack: &Heavy<'a>| (&*stack.sample.task.comm, stack.sample.task.tgid);
    stacks.sort_by(|a, b| {
        b.total()
            .cmp(&a.total())
            .then_with(|| name(a).cmp(&name(b)))
    });
    stacks
}

fn key(sample: &Sample) -> Key<'_> {
    let task = &sample.task;
    (&task.comm, sample.reason, sample.idle, names(sample))
}

/// Every name of a sample's stacks in order, parts told apart by empty names.
fn names(sample: &Sample) -> Vec<&str> {
    fn part(frames: &[Frame]) -> impl Iterator<Item = &str> {
        frames.iter().map(|frame| &*frame.name).chain([""])
    }
    let mut names: Vec<&str> = part(&sample.user).chain(part(&sample.kernel)).collect();
    if let Some(waker) = &sample.waker {
        names.push(waker.task.as_ref().map_or("", |task| &*task.comm));
        names.extend(part(&waker.user).chain(part(&waker.kernel)));
    }
    names
}
