//! PSI triggers: the kernel wakes whoever asked when tasks lost so much time within a window.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use anyhow::Result;
use session::schedule::parse_duration;

use crate::pressure::psi::{Resource, Source};

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
    pub(crate) fn unprivileged(self) -> Option<Self> {
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

    pub(crate) fn write(self, source: &Source) -> io::Result<std::fs::File> {
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
