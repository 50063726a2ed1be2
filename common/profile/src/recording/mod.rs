//! Profiles as files have them: every name once, every stack once, equal samples added up.
//!
//! [`crate::model`] is what tools make; this is what files become, however large: memory follows the number of
//! different stacks, not the number of lines. Stacks are paths in a tree, so that common roots are kept once.

mod chain;
mod convert;
mod interned;
mod names;
mod select;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::Deserialize;

use crate::frame::FrameKind;
use crate::model::StackEnd;
pub use chain::{Boxes, Cell, CellKind, Unchained};
pub(crate) use interned::Interned;
pub use names::{NameId, Names};

/// A map whose order nothing depends on, with seeded hashes: names are other people's.
pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;

/// Most frames of one stack of a file.
pub(crate) const DEEPEST: usize = 16 << 10;

/// Name and unit of one measured number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Value {
    /// What it is, e.g. `samples`, `blocked`.
    pub name: String,
    /// `count`, `ns`, `bytes`, or what was added up. Empty: the file does not say.
    pub unit: String,
}

impl Value {
    /// A number of that name, in that unit.
    pub(crate) fn new(name: impl Into<String>, unit: impl Into<String>) -> Self {
        let (name, unit) = (name.into(), unit.into());
        Self { name, unit }
    }
}

/// What a file says about all of its stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The tool that made it; empty where the file does not say.
    pub tool: String,
    /// What made it take a sample, e.g. `page-faults`; empty where the file does not say.
    pub event: String,
    /// What each sample's values are; the first is the one that graphs draw.
    pub values: Vec<Value>,
    /// Values of one unit are not parts of one: objects that were made, and those that are left.
    pub are_apart: bool,
    /// Length of the window, ns; 0: unknown.
    pub duration_ns: u64,
    /// When the window began, ns since 1970; 0: unknown.
    pub time_ns: u64,
    /// Time that one sample stands for, ns; 0: unknown, or samples are of no clock.
    pub period_ns: u64,
    /// Remarks, one line each: losses, cost.
    pub comments: Vec<String>,
    /// Build ID (hexadecimal) by module; empty where files of one name differ.
    pub build_ids: std::collections::BTreeMap<String, String>,
    /// Tasks have IDs that the file shows beside their names.
    pub shows_threads: bool,
    /// Parts of the file that are not in the recording.
    pub left_out: LeftOut,
    /// Counts of samples or intervals are known, so that chance can be judged.
    pub has_counts: bool,
}

/// Lines and records that a reader met and did not take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Other kinds of events, and how many of each.
    pub events: std::collections::BTreeMap<String, u64>,
    /// Malformed lines.
    pub malformed: u64,
    /// Each of them took the event with it that it was in.
    pub with_events: bool,
    /// The first of them: its place, and what is wrong.
    pub first: String,
    /// Values that are rounded, for their unit has no fractions.
    pub rounded: u64,
}

/// Kinds of events that are told apart, the longest name of one, bytes, and how many are named.
const MOST_EVENTS: usize = 1000;
const LONGEST_EVENT: usize = 200;
const NAMED_EVENTS: usize = 10;

impl LeftOut {
    /// The most frequent kinds of events, with their numbers.
    pub fn most(&self) -> Vec<(&str, u64)> {
        let events = self.events.iter();
        let mut events: Vec<(&str, u64)> = events.map(|(name, n)| (name.as_str(), *n)).collect();
        events.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        events.truncate(NAMED_EVENTS);
        events
    }

    /// Counts a malformed line; only of the first it is asked what is wrong.
    pub(crate) fn add_malformed(&mut self, what: impl FnOnce() -> String) {
        if self.malformed == 0 {
            self.first = what();
        }
        self.malformed += 1;
    }

    /// Counts an event of a kind that is not asked for.
    pub(crate) fn add(&mut self, event: &str) {
        if let Some(count) = self.events.get_mut(event) {
            *count += 1;
        } else {
            let name = if self.events.len() < MOST_EVENTS && event.len() <= LONGEST_EVENT {
                event
            } else {
                "others"
            };
            *self.events.entry(name.to_owned()).or_default() += 1;
        }
    }
}

/// One entry of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    /// Function.
    pub name: NameId,
    /// Path of its file, or what it is called.
    pub module: NameId,
    /// Source file.
    pub file: NameId,
    /// Source line; 0: unknown.
    pub line: u32,
    /// Address in the module; 0: unknown.
    pub address: u64,
    /// Whose code.
    pub kind: FrameKind,
    /// Inlined into the frame rootward of it.
    pub inlined: bool,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskKey {
    /// Its name.
    pub comm: NameId,
    /// Process, 0: unknown.
    pub pid: u32,
    /// Thread, 0: unknown.
    pub tid: u32,
}

impl TaskKey {
    /// One of which nothing but the name is known.
    pub(crate) fn named(comm: NameId) -> Self {
        let (pid, tid) = (0, 0);
        Self { comm, pid, tid }
    }
}

/// A path from the root, by its last node; 0 is the empty stack.
pub type StackId = u32;

/// Who made a task runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakerKey {
    /// `None`: an interrupt.
    pub task: Option<TaskKey>,
    /// Root → leaf, user then kernel.
    pub stack: StackId,
    /// How its user part ended.
    pub end: Option<StackEnd>,
}

/// A waker's number in its recording; 0: none. Most samples have none, so keys have only this.
pub type WakerId = u32;

/// What tells two samples apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// Whose stack.
    pub task: TaskKey,
    /// Root → leaf, user then kernel.
    pub stack: StackId,
    /// How the user part ended.
    pub end: Option<StackEnd>,
    /// Why the task waited; [`NameId::NONE`] where there is nothing to say.
    pub reason: NameId,
    /// Nothing to do.
    pub idle: bool,
    /// Who ended the wait: [`Recording::waker`]; 0: nobody knows.
    pub waker: WakerId,
    /// Index of a set of other labels; 0: none.
    pub labels: u32,
}

/// Samples that are alike.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// What they share.
    pub key: &'a RowKey,
    /// How many there were.
    pub count: u64,
    /// Sums, one per value.
    pub values: &'a [u64],
}

/// Other labels of a sample: key and value.
pub type Labels = Vec<(NameId, NameId)>;

/// Everything that a file, or several, said.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// About all of it.
    pub header: Header,
    /// Every text.
    pub names: Names,
    frames: Interned<FrameKey>,
    /// Parent and frame; entry 0 is never used.
    nodes: Interned<(StackId, u32)>,
    labels: Interned<Labels>,
    wakers: Interned<WakerKey>,
    rows: Interned<RowKey>,
    counts: Vec<u64>,
    values: Vec<u64>,
}

impl Recording {
    /// An empty one with these values.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            ..Self::default()
        }
    }

    /// A thread of a name, by its process and its own ID.
    pub(crate) fn task(&mut self, comm: &str, pid: u32, tid: u32) -> TaskKey {
        let comm = self.names.id(comm);
        TaskKey { comm, pid, tid }
    }

    /// The stack that goes on from `parent` with `frame`; parent 0 is the root.
    pub fn push(&mut self, parent: StackId, frame: FrameKey) -> StackId {
        let frame = self.frame_id(&frame);
        self.push_id(parent, frame)
    }

    /// The index of a frame in [`Self::frames`], new or known.
    pub(crate) fn frame_id(&mut self, frame: &FrameKey) -> u32 {
        self.frames.id(frame)
    }

    /// [`Self::push`] of a frame by its index.
    pub(crate) fn push_id(&mut self, parent: StackId, frame: u32) -> StackId {
        self.nodes.id(&(parent, frame)) + 1
    }

    /// Adds to what is there of the same key. Sums stop at the largest number.
    pub fn add(&mut self, key: &RowKey, count: u64, values: &[u64]) {
        let row = self.row(key);
        self.add_to(row, count, values);
    }

    /// The number of a key's row, new or known.
    pub(crate) fn row(&mut self, key: &RowKey) -> u32 {
        let row = self.rows.id(key);
        if row as usize == self.counts.len() {
            self.counts.push(0);
            let width = self.header.values.len();
            self.values.resize(self.values.len() + width, 0);
        }
        row
    }

    /// Adds to a row.
    pub(crate) fn add_to(&mut self, row: u32, count: u64, values: &[u64]) {
        let (row, width) = (row as usize, self.header.values.len());
        self.counts[row] = self.counts[row].saturating_add(count);
        let sums = &mut self.values[row * width..(row + 1) * width];
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = sum.saturating_add(*value);
        }
    }

    /// A number for a set of labels.
    pub fn label_set(&mut self, labels: Labels) -> u32 {
        if labels.is_empty() {
            return 0;
        }
        self.labels.id(&labels) + 1
    }

    /// The labels of a number.
    pub fn labels(&self, set: u32) -> &[(NameId, NameId)] {
        match set {
            0 => &[],
            set => &self.labels.all[set as usize - 1],
        }
    }

    /// A number for a waker.
    pub fn waker_id(&mut self, waker: &WakerKey) -> WakerId {
        self.wakers.id(waker) + 1
    }

    /// Who ended a wait.
    pub fn waker(&self, id: WakerId) -> Option<WakerKey> {
        let index = (id as usize).checked_sub(1)?;
        self.wakers.all.get(index).copied()
    }

    /// All samples, in the order that they were first seen.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        let width = self.header.values.len();
        self.rows
            .all
            .iter()
            .enumerate()
            .map(move |(index, key)| Row {
                key,
                count: self.counts[index],
                values: &self.values[index * width..(index + 1) * width],
            })
    }

    /// The frames of a stack as indices of [`Self::frames`], leaf → root.
    pub fn frame_ids(&self, stack: StackId) -> impl Iterator<Item = u32> {
        let mut at = stack;
        std::iter::from_fn(move || {
            let (parent, frame) = self.nodes.all.get((at as usize).checked_sub(1)?)?;
            at = *parent;
            Some(*frame)
        })
    }

    /// The frames of a stack, leaf → root.
    pub fn leaf_first(&self, stack: StackId) -> impl Iterator<Item = &FrameKey> {
        self.frame_ids(stack)
            .map(|frame| &self.frames.all[frame as usize])
    }

    /// The frames of a stack, root → leaf.
    pub fn root_first(&self, stack: StackId) -> Vec<&FrameKey> {
        let mut frames: Vec<&FrameKey> = self.leaf_first(stack).collect();
        frames.reverse();
        frames
    }

    /// Nodes of the tree of stacks, for those who keep something per node.
    pub fn stacks(&self) -> usize {
        self.nodes.all.len() + 1
    }

    /// Different frames.
    pub fn frames(&self) -> &[FrameKey] {
        &self.frames.all
    }

    /// The text of a name.
    pub fn text(&self, name: NameId) -> &str {
        self.names.text(name)
    }

    /// What graphs draw of a row: the sum of all values that share the first one's unit, where they are parts of one.
    pub fn weight(&self, row: &Row<'_>) -> u64 {
        let Some(first) = self.header.values.first() else {
            return 0;
        };
        if self.header.are_apart {
            return row.values[0];
        }
        let same = self.header.values.iter().zip(row.values);
        same.filter(|(value, _)| value.unit == first.unit)
            .fold(0, |sum: u64, (_, value)| sum.saturating_add(*value))
    }

    /// Sum of all weights.
    pub fn total(&self) -> u64 {
        self.rows()
            .fold(0, |sum: u64, row| sum.saturating_add(self.weight(&row)))
    }

    /// The unit of the weights; empty where the file does not say.
    pub fn unit(&self) -> &str {
        self.header.values.first().map_or("", |value| &value.unit)
    }
}
