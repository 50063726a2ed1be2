//! Kinds of time beside offcputime's reasons, and whose it is.

use std::sync::Arc;

/// Time on CPUs.
pub(crate) const ON_CPU: &str = "on-cpu";
/// Time in the run queue.
pub(crate) const RUN_QUEUE: &str = "run-queue";
/// The reason of waits for children.
pub(crate) const FOR_CHILD: &str = "wait";
/// Waits of threads with nothing to do.
pub(crate) const IDLE: &str = "idle";
/// Time between switches that the kernel does not show.
pub(crate) const UNSEEN: &str = "unseen";
/// Waits that no table had room for, or whose stack was not walked.
pub(crate) const LOST: &str = "lost";
/// Time that no line has; less than none where lines overlap.
pub(crate) const RESIDUAL: &str = "residual";

/// A program: its name and its process ID.
pub(crate) type Program = (Arc<str>, u32);

/// A line of the table: its kind, its place, and the lock that it is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) kind: &'static str,
    pub(crate) place: Option<Arc<str>>,
    pub(crate) lock: Option<String>,
}

impl At {
    /// Time of a kind in no place.
    pub(crate) fn of(kind: &'static str) -> Self {
        Self {
            kind,
            place: None,
            lock: None,
        }
    }
}
