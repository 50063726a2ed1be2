//! Meanings of PostgreSQL's wait events, by release: `events.txt`.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crate::lockstat::row::For;

/// Class of a wait event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    Lwlock,
    Lock,
    BufferPin,
    Activity,
    Client,
    Extension,
    Ipc,
    Timeout,
    Io,
    /// A number that no release has.
    Unknown,
}

impl Class {
    /// Each with its number, `enum wait_event_class` of the BPF side, and its word.
    const KNOWN: [(Self, u32, &str); 9] = [
        (Self::Lwlock, 0x01, "lwlock"),
        (Self::Lock, 0x03, "lock"),
        (Self::BufferPin, 0x04, "bufferpin"),
        (Self::Activity, 0x05, "activity"),
        (Self::Client, 0x06, "client"),
        (Self::Extension, 0x07, "extension"),
        (Self::Ipc, 0x08, "ipc"),
        (Self::Timeout, 0x09, "timeout"),
        (Self::Io, 0x0a, "io"),
    ];

    /// Class of an event by its number.
    pub(crate) fn of(event: u32) -> Self {
        let mut known = Self::KNOWN.into_iter();
        let found = known.find(|(_, number, _)| *number == event >> 24);
        found.map_or(Self::Unknown, |(class, ..)| class)
    }

    /// A stable lower-case word.
    pub(crate) fn word(self) -> &'static str {
        let mut known = Self::KNOWN.into_iter();
        let found = known.find(|(class, ..)| *class == self);
        found.map_or("wait-event", |(.., word)| word)
    }

    /// Thing that a process waits for.
    pub(crate) fn what(self) -> For {
        match self {
            Self::Activity | Self::Client | Self::Timeout => For::Work,
            Self::Extension | Self::Unknown => For::Unclear,
            Self::Lwlock | Self::Lock | Self::BufferPin | Self::Ipc | Self::Io => For::Others,
        }
    }
}

/// Timeouts that are no rest: a spinlock's others are awaited, and room in the checkpointer's queue.
const FOR_OTHERS: [&str; 2] = ["SpinDelay", "RegisterSyncRequest"];

/// Thing that a process waits for in an event, whose number depends on the major release.
pub(super) fn what(release: Option<u32>, event: u32) -> For {
    let class = Class::of(event);
    match class {
        Class::Timeout if FOR_OTHERS.contains(&&*name(release, event)) => For::Others,
        _ => class.what(),
    }
}

/// Names of one class's events in some releases, by number.
#[derive(Debug)]
struct List {
    releases: RangeInclusive<u32>,
    names: Vec<Option<&'static str>>,
}

type Lists = HashMap<Class, Vec<List>>;

static OURS: LazyLock<Lists> =
    LazyLock::new(|| parse(include_str!("events.txt")).expect("a test reads the tool's own table"));

/// Reads a table; `None`: it makes no sense.
fn parse(text: &'static str) -> Option<Lists> {
    let mut lists: Lists = HashMap::new();
    let mut last = None;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    for line in lines.filter(|line| !line.is_empty()) {
        if line.starts_with(' ') {
            let list = lists.get_mut(&last?)?.last_mut()?;
            let names = line.split_whitespace();
            list.names
                .extend(names.map(|name| (name != "-").then_some(name)));
            continue;
        }
        let (word, releases) = line.split_once(' ')?;
        let (first, final_one) = releases.split_once('-').unwrap_or((releases, releases));
        let mut classes = Class::KNOWN.into_iter();
        let (class, ..) = classes.find(|(.., known)| *known == word)?;
        last = Some(class);
        lists.entry(class).or_default().push(List {
            releases: first.parse().ok()?..=final_one.parse().ok()?,
            names: Vec::new(),
        });
    }
    Some(lists)
}

/// Name of an event in a major release, as pg_stat_activity has it; its number, where nobody knows.
pub(crate) fn name(release: Option<u32>, event: u32) -> String {
    let class = Class::of(event);
    if class == Class::Unknown {
        return format!("{event:#010x}");
    }
    let number = event & 0xffff;
    let lists = OURS.get(&class).into_iter().flatten();
    let mut lists = lists.filter(|list| release.is_some_and(|one| list.releases.contains(&one)));
    // Bits between class and number are none of an event's.
    let is_event = event & 0x00ff_0000 == 0;
    let name = lists.find_map(|list| *list.names.get(number as usize)?);
    name.filter(|_| is_event).map_or_else(
        || match is_event {
            true => number.to_string(),
            false => format!("{event:#010x}"),
        },
        Into::into,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_named_as_pg_stat_activity_does() {
        for (release, event, class, named) in [
            (15, 0x0100_0008, "lwlock", "WALWrite"),
            (15, 0x0100_0004, "lwlock", "ProcArray"),
            (14, 0x0100_0038, "lwlock", "BufferContent"),
            (15, 0x0100_0038, "lwlock", "BufferContent"),
            (17, 0x0100_003d, "lwlock", "BufferContent"),
            (18, 0x0100_003e, "lwlock", "BufferContent"),
            (15, 0x0300_0000, "lock", "relation"),
            (15, 0x0300_0004, "lock", "tuple"),
            (15, 0x0300_0005, "lock", "transactionid"),
            (18, 0x0300_000b, "lock", "applytransaction"),
            (15, 0x0400_0000, "bufferpin", "BufferPin"),
            (15, 0x0500_0001, "activity", "AutoVacuumMain"),
            (15, 0x0600_0000, "client", "ClientRead"),
            (15, 0x0700_0000, "extension", "Extension"),
            (15, 0x0800_0024, "ipc", "ProcArrayGroupUpdate"),
            (15, 0x0900_0002, "timeout", "PgSleep"),
            (15, 0x0a00_0000, "io", "BaseBackupRead"),
        ] {
            assert_eq!(name(Some(release), event), named, "{release} {event:#x}");
            assert_eq!(Class::of(event).word(), class);
        }
    }

    #[test]
    fn numbers_that_are_not_known_stay_numbers() {
        for (release, event, named) in [
            // A release that there was not yet, or nobody knows which; another's event; a gap; an extension's.
            (Some(99), 0x0300_0005, "5"),
            (None, 0x0300_0005, "5"),
            (Some(14), 0x0300_000b, "11"),
            (Some(15), 0x0100_0000, "0"),
            (Some(15), 0x0100_ffff, "65535"),
            (Some(15), 0x0600_00ff, "255"),
            // No event at all.
            (Some(15), 0x0301_0005, "0x03010005"),
            (Some(15), 0x02ff_0005, "0x02ff0005"),
            (Some(15), u32::MAX, "0xffffffff"),
            (Some(15), 0, "0x00000000"),
        ] {
            assert_eq!(name(release, event), named, "{release:?} {event:#x}");
        }
        assert_eq!(Class::of(u32::MAX).what(), For::Unclear);
        for (release, event, expected) in [
            (16, 0x0900_0006, For::Others),
            (15, 0x0900_0006, For::Work),
            (16, 0x0900_0002, For::Work),
        ] {
            assert_eq!(what(Some(release), event), expected, "{release} {event:#x}");
        }
        assert_eq!(Class::of(0x02ff_0005).word(), "wait-event");
    }

    #[test]
    fn every_release_has_each_class_once() {
        for (class, ..) in Class::KNOWN {
            for release in 14..=18 {
                let lists = OURS[&class].iter();
                let of_release = lists.filter(|list| list.releases.contains(&release));
                let mut names: Vec<&str> = of_release
                    .clone()
                    .flat_map(|list| list.names.iter().flatten().copied())
                    .collect();
                assert_eq!(of_release.count(), 1, "{class:?} {release}");
                let all = names.len();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), all, "{class:?} {release}");
            }
        }
    }

    #[test]
    fn tables_that_make_no_sense_are_refused() {
        for text in ["  Name\n", "lock\n", "lock x\n", "lock 14-\n", "lick 14\n"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
