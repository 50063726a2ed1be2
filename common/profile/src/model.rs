//! Samples, and the profile that holds them.

use std::sync::Arc;

use serde::Serialize;

use crate::frame::Frame;

/// Who a sample is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Thread name as the kernel has it, not escaped.
    pub comm: Arc<str>,
    /// Process ID in the tracer's PID namespace; 0 when the task is not visible there.
    pub tgid: u32,
    /// Thread ID in the tracer's PID namespace.
    pub tid: u32,
}

impl Task {
    /// A thread of a name, by its process and its own ID.
    pub fn new(comm: impl Into<Arc<str>>, tgid: u32, tid: u32) -> Self {
        let comm = comm.into();
        Self { comm, tgid, tid }
    }
}

/// Who made a blocked task runnable, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waker {
    /// The task that was running, or `None` when an interrupt did it.
    pub task: Option<Task>,
    /// User part of the waker's stack, root → leaf.
    pub user: Arc<[Frame]>,
    /// How the user part ended; `None` where there is none.
    pub user_end: Option<StackEnd>,
    /// Kernel part of the waker's stack, root → leaf.
    pub kernel: Arc<[Frame]>,
}

/// How a user stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// At the thread's first function: it is complete.
    Root,
    /// At the greatest depth that is walked.
    Depth,
    /// In code without call frame information and without a frame pointer.
    NoTable,
    /// At memory that is not there, or not paged in.
    Unreadable,
    /// At call frame information that unwind tables cannot say.
    Unsupported,
    /// Nowhere: it was not walked, to keep within a budget.
    LeftOut,
}

impl StackEnd {
    /// All of them with their words, the complete one first.
    const ALL: [(Self, &'static str); 6] = [
        (Self::Root, "root"),
        (Self::Depth, "depth"),
        (Self::NoTable, "no-table"),
        (Self::Unreadable, "unreadable"),
        (Self::Unsupported, "unsupported"),
        (Self::LeftOut, "left-out"),
    ];

    /// A stable lower-case word.
    pub fn word(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(end, _)| *end == self)
            .map_or("", |(_, word)| word)
    }

    /// The one of a word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, own)| *own == word).map(|(end, _)| end)
    }
}

/// One stack with what was measured on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The task whose stack it is.
    pub task: Task,
    /// Why it waited, for off-CPU samples; stable lower-case words such as `futex`.
    pub reason: Option<&'static str>,
    /// User stack, root → leaf; inlined functions are frames of their own.
    pub user: Arc<[Frame]>,
    /// How the user stack ended; `None` where there is none.
    pub user_end: Option<StackEnd>,
    /// Kernel stack, root → leaf.
    pub kernel: Arc<[Frame]>,
    /// The waker, where it was asked for.
    pub waker: Option<Arc<Waker>>,
    /// The thread had nothing to do: an ordinary wait of a pool's thread, not trouble.
    pub idle: bool,
    /// Number of intervals or samples behind the values.
    pub count: u64,
    /// One number per entry of [`Profile::values`].
    pub values: Vec<u64>,
}

impl Sample {
    /// Sum of all values; meaningful where they share a unit. It stops at the largest number.
    pub fn total(&self) -> u64 {
        let values = self.values.iter().copied();
        values.fold(0, u64::saturating_add)
    }
}

/// Name and unit of one measured number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ValueType {
    /// What it is, e.g. `samples`, `blocked`.
    pub name: &'static str,
    /// `count`, `ns`, `bytes`, or what was added up: `arg1 of malloc`.
    pub unit: &'static str,
}

impl ValueType {
    /// A number of that name, in that unit.
    pub const fn new(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit }
    }
}

/// Everything a run of a stack tool found.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The tool that made it.
    pub tool: &'static str,
    /// What each sample's values are; the first is the one that graphs draw.
    pub values: Vec<ValueType>,
    /// The samples, in no particular order; equal stacks may repeat.
    pub samples: Vec<Sample>,
    /// Length of the window, ns.
    pub duration_ns: u64,
}

impl Profile {
    /// What [`Sample::total`] counts in: the unit of the first value.
    pub fn unit(&self) -> &'static str {
        self.values.first().map_or("count", |value| value.unit)
    }
}
