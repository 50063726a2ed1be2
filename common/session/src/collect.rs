//! The loop of a running collection: until time is up, a signal comes, the command ends or the last process of `-p` does.

use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::Result;
use budget::Next;
use host::clock::monotonic_ns;
use host::signals::{self, Signals};

use crate::command::Running;
use crate::lives::Lives;
use crate::outcome::Outcome;
use crate::progress::{Progress, State};

/// Longest pause between two looks at the rings: what they hold must last that long.
const STEP: Duration = Duration::from_millis(50);

/// Events that end a run before its time.
pub(crate) struct Ending<'a> {
    pub(crate) signals: &'a Signals,
    pub(crate) command: Option<&'a mut Running>,
    pub(crate) lives: &'a Lives,
}

/// What ends a collection.
pub(crate) struct Until<'a> {
    /// Ctrl-C and its kin.
    signals: &'a Signals,
    /// `-- COMMAND`.
    command: Option<&'a mut Running>,
    /// `-p`, of whom nobody may be left.
    lives: &'a Lives,
    /// When the window opened, ns.
    start_ns: u64,
    /// When it closes, ns; `None`: when something else ends it.
    pub(crate) deadline_ns: Option<u64>,
    /// What a budget demands.
    next: Next,
}

/// Calls `step` some 20 times a second, and once more at the end. Readable `fds` wake it early.
///
/// # Errors
///
/// Those of `step`.
pub(crate) fn collect(
    until: &mut Until<'_>,
    fds: &[RawFd],
    progress: &Progress,
    mut step: impl FnMut() -> Result<State>,
) -> Result<()> {
    let mut fds = fds.to_vec();
    fds.push(until.signals.fd());
    fds.extend(until.command.as_deref().map(Running::fd));
    while !until.is_over() {
        signals::wait(&fds, until.pause());
        let state = step()?;
        until.next = state.next;
        let elapsed = Duration::from_nanos(monotonic_ns().saturating_sub(until.start_ns));
        progress.update(State { elapsed, ..state });
    }
    progress.clear();
    Ok(())
}

impl<'a> Until<'a> {
    /// An open-ended window from `start_ns` on.
    pub(crate) fn new(ending: &'a mut Ending<'_>, start_ns: u64) -> Self {
        Self {
            signals: ending.signals,
            command: ending.command.as_deref_mut(),
            lives: ending.lives,
            start_ns,
            deadline_ns: None,
            // A window that a report has closed is to open again at once.
            next: Next {
                due_ns: Some(start_ns),
                must_stop: false,
            },
        }
    }
}

impl Until<'_> {
    fn is_over(&mut self) -> bool {
        self.deadline_ns
            .is_some_and(|deadline| monotonic_ns() >= deadline)
            || self.is_interrupted()
    }

    /// Whether something other than the clock ended it: there will be no next window.
    pub(crate) fn is_interrupted(&mut self) -> bool {
        self.signals.ended()
            || self.next.must_stop
            || self
                .command
                .as_mut()
                .is_some_and(|command| command.exited())
            || self.lives.are_over()
    }

    /// To the next step, which a budget may want earlier.
    fn pause(&self) -> Duration {
        let first = self.deadline_ns.into_iter().chain(self.next.due_ns).min();
        let left = first.map(|first| first.saturating_sub(monotonic_ns()));
        left.map_or(STEP, |left| STEP.min(Duration::from_nanos(left)))
    }
}

/// After the report, passes a signal on to the command, if there is one, and waits for it,
/// though the run may have failed; its failure outweighs losses.
///
/// # Errors
///
/// The run's, and when the command cannot be waited for.
pub(crate) fn finish(
    command: Option<Running>,
    signals: &Signals,
    ran: Result<Outcome>,
) -> Result<Outcome> {
    match command {
        Some(command) => finish_command(command, signals, ran),
        None => ran,
    }
}

fn finish_command(
    mut command: Running,
    signals: &Signals,
    ran: Result<Outcome>,
) -> Result<Outcome> {
    // Ctrl-C has reached the whole process group already.
    if let Some(signal) = signals.which().filter(|signal| *signal != libc::SIGINT) {
        command.forward(signal);
    }
    let status = command.wait();
    Ok(ran?.after_command(status?))
}
