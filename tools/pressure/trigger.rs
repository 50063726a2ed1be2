//! PSI triggers: the kernel wakes whoever asked when tasks lost so much time within a window.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use trace::scheduling;
use trace::signals::Signals;
use trace::window::parse_duration;

use crate::args::Args;
use crate::capture::Capture;
use crate::psi::{Resource, Source};
use crate::urgency::Urgency;

/// Windows that the kernel takes.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);
/// Without `CAP_SYS_RESOURCE` the kernel takes multiples of this only (Linux 6.4): it looks no more often anyway.
const UNPRIVILEGED_STEP: Duration = Duration::from_secs(2);

/// `memory some 150ms/2s`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    pub(crate) resource: Resource,
    /// All tasks stalled, not just one.
    pub(crate) is_full: bool,
    pub(crate) stall: Duration,
    pub(crate) window: Duration,
}

/// A trigger that the kernel has accepted; it ends with the file.
pub(crate) struct Armed {
    file: std::fs::File,
    /// As accepted: the window may have been made longer.
    pub(crate) trigger: Trigger,
}

/// What ended the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Fired,
    Interrupted,
}

impl Trigger {
    /// Reads `RESOURCE some|full STALL/WINDOW`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write it as 'memory some 150ms/2s': cpu, memory, io or irq; some or full; time lost/window";
        let words: Vec<&str> = text.split_whitespace().collect();
        let [resource, kind, times] = words[..] else {
            return Err(FORM.into());
        };
        let resource = Resource::parse(resource).ok_or(FORM)?;
        let is_full = match kind {
            "some" => false,
            "full" => true,
            _ => return Err(FORM.into()),
        };
        let (stall, window) = times.split_once('/').ok_or(FORM)?;
        let (stall, window) = (parse_duration(stall)?, parse_duration(window)?);
        if !(SHORTEST..=LONGEST).contains(&window) {
            return Err("the kernel takes windows from 500ms to 10s".into());
        }
        if stall > window || stall < Duration::from_micros(1) {
            return Err("the time lost must be within the window".into());
        }
        Ok(Self {
            resource,
            is_full,
            stall,
            window,
        })
    }

    /// The next longer window that needs no privilege, with the same share of it lost; `None`: none, or as it is.
    fn unprivileged(self) -> Option<Self> {
        let steps = self
            .window
            .as_micros()
            .div_ceil(UNPRIVILEGED_STEP.as_micros());
        let window = UNPRIVILEGED_STEP * u32::try_from(steps).ok()?;
        let stall = self
            .stall
            .mul_f64(window.as_secs_f64() / self.window.as_secs_f64());
        let longer = Self {
            stall,
            window,
            ..self
        };
        (window != self.window && window <= LONGEST).then_some(longer)
    }

    fn write(self, source: &Source) -> io::Result<std::fs::File> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(source.file(self.resource))?;
        // The kernel overwrites the last byte with its own end of string.
        let text = format!(
            "{} {} {}\0",
            self.kind(),
            self.stall.as_micros(),
            self.window.as_micros()
        );
        file.write_all(text.as_bytes())?;
        Ok(file)
    }

    fn kind(self) -> &'static str {
        if self.is_full { "full" } else { "some" }
    }

    /// Hands it to the kernel; a window that only the privileged may have is made longer.
    ///
    /// # Errors
    ///
    /// What the kernel refuses, with the remedy.
    pub(crate) fn arm(self, source: &Source) -> Result<Armed> {
        if let Some(why) = source.absence() {
            bail!("--trigger needs PSI: {why}");
        }
        let refused =
            |err: &io::Error| matches!(err.raw_os_error(), Some(libc::EINVAL | libc::EPERM));
        let (trigger, written) = match (self.write(source), self.unprivileged()) {
            (Err(err), Some(longer)) if refused(&err) => (longer, longer.write(source)),
            (written, _) => (self, written),
        };
        let file = written.with_context(|| {
            format!(
                "set trigger '{trigger}' on {}; without CAP_SYS_RESOURCE windows are multiples of 2s, and irq knows \
                 full only",
                source.file(self.resource).display()
            )
        })?;
        Ok(Armed { file, trigger })
    }
}

impl std::fmt::Display for Trigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |duration: Duration| match duration.as_micros() {
            us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
            us if us % 1_000 == 0 => format!("{}ms", us / 1_000),
            us => format!("{us}us"),
        };
        let (stall, window) = (ms(self.stall), ms(self.window));
        write!(
            f,
            "{} {} {stall}/{window}",
            self.resource.word(),
            self.kind()
        )
    }
}

impl Armed {
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

/// With `-s`, how often what processes map is taken in while a trigger is waited for: its stream has no room for more.
const ABSORB_MS: i32 = 200;

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
        trace::say!("pressure: waiting for {}{why}; Ctrl-C ends", armed.trigger);
    }
    let urgency = Urgency::raise();
    let _resting = scheduling::rest();
    let event = armed.wait(signals, capture)?;
    Ok((event, urgency))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read_and_written_alike() {
        let text = "memory some 150ms/2s";
        let trigger = Trigger::parse(text).expect("a trigger");
        assert_eq!(trigger.resource, Resource::Memory);
        assert_eq!(trigger.to_string(), text);
        assert!(Trigger::parse("io full 0.5/1").expect("seconds").is_full);
        for bad in [
            "",
            "memory 150ms/2s",
            "disk some 150ms/2s",
            "memory any 150ms/2s",
            "memory some 150ms",
            "memory some 150ms/11s",
            "memory some 150ms/100ms",
            "memory some 3s/2s",
            "memory some 0/2s",
        ] {
            assert!(Trigger::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_unprivileged_window_keeps_the_share() {
        let longer = |text| {
            let trigger = Trigger::parse(text).expect("a trigger");
            trigger.unprivileged().map(|trigger| trigger.to_string())
        };
        assert_eq!(
            longer("cpu some 150ms/1s").as_deref(),
            Some("cpu some 300ms/2s")
        );
        assert_eq!(
            longer("cpu some 300ms/3s").as_deref(),
            Some("cpu some 400ms/4s")
        );
        assert_eq!(
            longer("cpu some 300ms/9500ms").as_deref(),
            Some("cpu some 315789us/10s")
        );
        assert_eq!(longer("cpu some 300ms/4s"), None);
    }
}
