//! A line of the account: time of one kind, and who is to blame for it.

use std::sync::Arc;

use profile::frame::Frame;

use crate::offcputime::SLEEP;

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

/// Somebody, or something, that time is due to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Culprit {
    /// It ended waits, in a function of its own; or it ran meanwhile.
    Program(Program, Option<Arc<str>>),
    /// A device's or a timer's interrupt ended waits.
    Interrupt,
    /// The waits are not over.
    Nobody,
    /// A function used the CPU.
    Function(Arc<str>),
}

impl Culprit {
    /// A task that ran too long ago to be remembered.
    pub(super) fn is_nameless(&self) -> bool {
        matches!(self, Self::Program((_, 0), _))
    }
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
    /// The program's function that waits.
    pub(crate) place: Option<Arc<str>>,
    pub(crate) ns: i64,
    /// Number of waits; 0: it is no wait.
    pub(crate) waits: u64,
    /// The most first.
    pub(crate) whose: Vec<(Program, u64)>,
    /// The most first.
    pub(crate) blames: Vec<Blame>,
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

    /// Its time, 0 where it is negative.
    pub(crate) fn time_ns(&self) -> u64 {
        self.ns.try_into().unwrap_or(0)
    }

    /// The culprit with most of it, and its share, from 0 to 1.
    pub(crate) fn first_blame(&self) -> Option<(&Culprit, f64)> {
        let first = self.blames.first()?;
        Some((&first.culprit, self.share(first)))
    }

    /// A culprit's share of it, from 0 to 1.
    pub(crate) fn share(&self, blame: &Blame) -> f64 {
        blame.value as f64 / self.blamed.max(1) as f64
    }
}
