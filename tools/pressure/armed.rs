//! Waits for a PSI trigger.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result, bail};
use host::scheduling;
use host::signals::Signals;

use crate::pressure::args::Args;
use crate::pressure::capture::Capture;
use crate::pressure::psi::Source;
use crate::pressure::trigger::Trigger;
use crate::pressure::urgency::Urgency;

/// A trigger that the kernel has accepted; it ends with the file.
pub(crate) struct Armed {
    file: std::fs::File,
    /// As accepted: the window may have been made longer.
    pub(crate) trigger: Trigger,
}

/// Time between two looks, with `-s`, at what processes map while a trigger is waited for: the stream has no room for more.
const ABSORB_MS: i32 = 200;

/// End of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Fired,
    Interrupted,
}

impl Armed {
    /// Hands it to the kernel; a window that only the privileged may have is made longer.
    ///
    /// # Errors
    ///
    /// What the kernel refuses, with the remedy.
    pub(crate) fn set(asked: Trigger, source: &Source) -> Result<Self> {
        if let Some(why) = source.absence() {
            bail!("--trigger needs PSI: {why}");
        }
        let refused =
            |err: &io::Error| matches!(err.raw_os_error(), Some(libc::EINVAL | libc::EPERM));
        let (trigger, written) = match (asked.write(source), asked.unprivileged()) {
            (Err(err), Some(longer)) if refused(&err) => (longer, longer.write(source)),
            (written, _) => (asked, written),
        };
        let file = written.with_context(|| {
            format!(
                "set trigger '{trigger}' on {}; without CAP_SYS_RESOURCE windows are multiples of 2s, and irq knows \
                 full only",
                source.file(trigger.resource).display()
            )
        })?;
        Ok(Self { file, trigger })
    }

    /// Sleeps until it fires or a signal comes: no tracing, and no timer but with `-s`.
    ///
    /// # Errors
    ///
    /// When the cgroup is removed.
    pub(crate) fn wait(&self, signals: &Signals, capture: &mut Capture) -> Result<Event> {
        loop {
            let stacks = capture.stacks_fd();
            let (trigger, signal) = poll(self.file.as_raw_fd(), signals.fd(), stacks)?;
            capture.absorb_stacks();
            if signals.ended() || signal != 0 {
                return Ok(Event::Interrupted);
            }
            if trigger & libc::POLLERR != 0 {
                bail!("the cgroup whose pressure was waited for is gone");
            }
            if trigger & libc::POLLPRI != 0 {
                return Ok(Event::Fired);
            }
        }
    }
}

/// What happened to the trigger's file and to the signals' one. `stacks`: with `-s`, what wakes it now and then, too.
fn poll(trigger: RawFd, signals: RawFd, stacks: Option<RawFd>) -> Result<(i16, i16)> {
    let entry = |fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let timeout_ms = stacks.map_or(-1, |_| ABSORB_MS);
    // One below 0 is left out.
    let mut fds = [
        entry(trigger, libc::POLLPRI),
        entry(signals, libc::POLLIN),
        entry(stacks.unwrap_or(-1), libc::POLLIN),
    ];
    // SAFETY: `fds` is an array of three valid entries.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), 3, timeout_ms) };
    let error = io::Error::last_os_error();
    if ready < 0 && error.kind() != io::ErrorKind::Interrupted {
        return Err(error).context("wait for the trigger");
    }
    Ok((fds[0].revents, fds[1].revents))
}

/// Everything is loaded and nothing attached: until it fires this costs memory and no time.
pub(crate) fn wait(
    args: &Args,
    armed: &Armed,
    signals: &Signals,
    capture: &mut Capture,
) -> Result<(Event, Urgency)> {
    if !args.common.quiet {
        let asked = args.trigger.filter(|asked| *asked != armed.trigger);
        let why = asked.map_or(String::new(), |asked| {
            format!(" (for {asked}: without CAP_SYS_RESOURCE windows are multiples of 2s)")
        });
        profile::say!("pressure: waiting for {}{why}; Ctrl-C ends", armed.trigger);
    }
    let urgency = Urgency::raise();
    let _resting = scheduling::rest();
    let event = armed.wait(signals, capture)?;
    Ok((event, urgency))
}
