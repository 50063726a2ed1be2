//! Kinds of time beside offcputime's reasons, and whose it is.

use std::sync::Arc;

use crate::offcputime::SLEEP;

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

/// The kind of waits for devices.
pub(crate) const BLOCK_IO: &str = "block-io";

/// The doing that takes most of the time for which threads have a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    OnCpu,
    /// Input and output.
    Disk,
    /// A nap of its own choice.
    Asleep,
    /// Off its CPU for another thread, or for input.
    ForOthers,
    /// Off its CPU for any of these.
    OffCpu,
}

impl Doing {
    /// Tells if time of a kind may be that.
    pub(crate) fn is(self, kind: &str) -> bool {
        let is_off_cpu = ![ON_CPU, RUN_QUEUE, IDLE].contains(&kind);
        match self {
            Self::OnCpu => kind == ON_CPU,
            Self::Disk => kind == BLOCK_IO,
            Self::Asleep => kind == SLEEP,
            Self::ForOthers => is_off_cpu && ![BLOCK_IO, SLEEP].contains(&kind),
            Self::OffCpu => is_off_cpu,
        }
    }
}

/// A place where threads wait: kind of the wait, and the program's function.
pub(crate) type Place = (&'static str, Option<Arc<str>>);

/// A place of a thread's time, and the number of the lock, if it is one's.
pub(crate) type Spot = (Place, Option<usize>);

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

/// Looks whether a spot's time is in a line.
pub(crate) fn is_of_line((place, lock): &Spot, (of_line, of_lock): &Spot) -> bool {
    lock == of_lock && place.0 == of_line.0 && (lock.is_some() || place.1 == of_line.1)
}

/// The line of a spot: a lock's waits are one, whatever function waits for it.
pub(crate) fn line_of(((kind, place), lock): &Spot) -> Spot {
    ((kind, place.clone().filter(|_| lock.is_none())), *lock)
}
