//! Pressure stall information: the kernel's own account of time that tasks lost for want of a resource.
//!
//! Shares over an interval come from the `total` counters. The averages are decayed over 10 s and more and lag behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use host::clock::monotonic_ns;
use host::remedies::cause;

/// What can be short. The values index arrays of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Cpu = 0,
    Memory = 1,
    Io = 2,
    /// Time that interrupts took from tasks (Linux 6.1 with `CONFIG_IRQ_TIME_ACCOUNTING`).
    Irq = 3,
}

impl Resource {
    pub(crate) const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Io, Self::Irq];

    /// As the kernel calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Irq => "irq",
        }
    }

    /// The same for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Io => "disk",
            Self::Irq => "irq",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|resource| resource.word() == word)
    }
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stall {
    /// Percent of the time, decayed over 10 s.
    pub(crate) avg10: f64,
    /// Since boot, us.
    pub(crate) total_us: u64,
}

/// One pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pressure {
    /// At least one task waited.
    pub(crate) some: Option<Stall>,
    /// Every task that was not asleep waited.
    pub(crate) full: Option<Stall>,
}

/// Whose pressure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The whole machine.
    System,
    /// A cgroup v2 directory.
    Cgroup(PathBuf),
}

impl Source {
    /// The pressure file of a resource.
    pub(crate) fn file(&self, resource: Resource) -> PathBuf {
        match self {
            Self::System => Path::new("/proc/pressure").join(resource.word()),
            Self::Cgroup(path) => path.join(format!("{}.pressure", resource.word())),
        }
    }

    /// Why there is no PSI at all, with the remedy; `None`: there is.
    pub(crate) fn absence(&self) -> Option<String> {
        let error = fs::read_to_string(self.file(Resource::Cpu)).err()?;
        Some(match (error.raw_os_error(), self) {
            (Some(libc::EOPNOTSUPP), Self::System) | (Some(libc::ENOENT), Self::System) => {
                "no PSI in this kernel: boot it with psi=1 (needs CONFIG_PSI=y, Linux 4.20)".into()
            }
            (Some(libc::EOPNOTSUPP), Self::Cgroup(path)) => format!(
                "PSI is off for this cgroup: echo 1 > {}/cgroup.pressure, or boot with psi=1",
                path.display()
            ),
            (Some(libc::ENOENT), Self::Cgroup(_)) => {
                "this cgroup has no pressure files: boot with psi=1 (the root cgroup has them from Linux 6.1 on; \
                 /proc/pressure is its own)"
                    .into()
            }
            _ => format!("PSI cannot be read: {}", cause(&error)),
        })
    }
}

/// Every pressure file at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    /// `CLOCK_MONOTONIC`.
    pub(crate) time_ns: u64,
    pressures: [Option<Pressure>; 4],
}

impl Snapshot {
    /// Reading makes the kernel bring the totals up to date.
    pub(crate) fn take(source: &Source) -> Self {
        Self {
            time_ns: monotonic_ns(),
            pressures: Resource::ALL
                .map(|resource| fs::read_to_string(source.file(resource)))
                .map(|text: io::Result<String>| text.ok().map(|text| parse(&text))),
        }
    }

    /// What was lost since `before`.
    pub(crate) fn since(&self, before: &Self, resource: Resource) -> Option<Lost> {
        let index = resource as usize;
        let (old, new) = (before.pressures[index]?, self.pressures[index]?);
        let elapsed_ns = self.time_ns.saturating_sub(before.time_ns).max(1);
        let share = |old: Option<Stall>, new: Option<Stall>| {
            let (old, new) = (old?, new?);
            Some(Share {
                lost_ns: new.total_us.saturating_sub(old.total_us) * 1_000,
                elapsed_ns,
                avg10: new.avg10,
            })
        };
        Some(Lost {
            some: share(old.some, new.some),
            // The machine as a whole always has something running where tasks wait for a CPU: the file has zeros.
            full: share(old.full, new.full),
        })
    }
}

/// Time lost within an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    /// Difference of the totals.
    pub(crate) lost_ns: u64,
    /// Of this time.
    pub(crate) elapsed_ns: u64,
    /// The kernel's average at the end, percent.
    pub(crate) avg10: f64,
}

impl Share {
    /// Of the interval. The kernel folds a total up to 2 s late where nobody reads it, so it may exceed 100: it is cut.
    pub(crate) fn percent(&self) -> f64 {
        (100.0 * self.lost_ns as f64 / self.elapsed_ns as f64).min(100.0)
    }
}

/// Both lines of a file over an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lost {
    pub(crate) some: Option<Share>,
    pub(crate) full: Option<Share>,
}

/// Lines are `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`; what cannot be read is left out.
fn parse(text: &str) -> Pressure {
    let line = |kind: &str| {
        let fields = text
            .lines()
            .find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        let field = |name: &str| {
            let mut fields = fields.split_whitespace();
            fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        Some(Stall {
            avg10: field("avg10")?.parse().ok()?,
            total_us: field("total")?.parse().ok()?,
        })
    };
    Pressure {
        some: line("some"),
        full: line("full"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "some avg10=43.75 avg60=68.70 avg300=69.48 total=2408395992\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

    #[test]
    fn both_lines_are_read_and_a_missing_one_is_none() {
        let pressure = parse(TEXT);
        assert_eq!(
            pressure.some,
            Some(Stall {
                avg10: 43.75,
                total_us: 2_408_395_992
            })
        );
        assert_eq!(pressure.full.map(|full| full.total_us), Some(7));
        // 5.10 has no such line for the CPU; irq has nothing else.
        assert_eq!(parse("full avg10=1.00 total=5").some, None);
        assert_eq!(parse("some avg10=x total=5\n"), Pressure::default());
        assert_eq!(parse(""), Pressure::default());
    }

    #[test]
    fn shares_are_of_the_interval_and_never_above_100() {
        let snapshot = |time_ns, total_us| Snapshot {
            time_ns,
            pressures: [
                Some(parse(&format!("some avg10=0.00 total={total_us}"))),
                None,
                None,
                None,
            ],
        };
        let before = snapshot(1_000_000_000, 100);
        let lost = snapshot(3_000_000_000, 500_100).since(&before, Resource::Cpu);
        let some = lost.and_then(|lost| lost.some).expect("a line");
        assert_eq!(some.lost_ns, 500_000_000);
        assert!((some.percent() - 25.0).abs() < 1e-9);
        let late = snapshot(1_500_000_000, 2_000_100).since(&before, Resource::Cpu);
        assert!((late.and_then(|lost| lost.some).expect("a line").percent() - 100.0).abs() < 1e-9);
        assert_eq!(before.since(&before, Resource::Irq), None);
    }
}
