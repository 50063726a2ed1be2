//! Kinds of time beside offcputime's reasons, and whose it is.

use std::sync::Arc;

/// Time on CPUs.
pub(crate) const ON_CPU: &str = "on-cpu";
/// Time in the run queue.
pub(crate) const RUN_QUEUE: &str = "run-queue";
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
