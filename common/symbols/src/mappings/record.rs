//! Decodes the perf side-band records that tell about address spaces.

use super::{FileKey, Mapping, backing_of};

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;
const MISC_COMM_EXEC: u16 = 1 << 13;
const HEADER: usize = 8;
/// `sample_id_all` with TID | TIME | CPU: three words at the end of every record.
const TRAILER: usize = 24;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Map {
        tgid: u32,
        mapping: Mapping,
    },
    Exec {
        tgid: u32,
    },
    Fork {
        child: u32,
        parent: u32,
    },
    Exit {
        tgid: u32,
    },
    /// The ring was full: so many records are missing.
    Lost(u64),
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// CLOCK_MONOTONIC.
    pub(super) time_ns: u64,
    pub(super) event: Event,
}

/// `None` for records about threads, plain renames and processes outside our PID namespace.
pub(super) fn parse(bytes: &[u8]) -> Option<Record> {
    let kind = u32_at(bytes, 0)?;
    let misc = u16::try_from(u32_at(bytes, 4)? & 0xffff).ok()?;
    let body_end = bytes.len().checked_sub(TRAILER)?;
    let body = bytes.get(HEADER..body_end)?;
    let time_ns = u64_at(bytes, body_end + 8)?;
    let event = match kind {
        LOST => Event::Lost(u64_at(body, 8)?),
        COMM if misc & MISC_COMM_EXEC != 0 => Event::Exec {
            tgid: visible(u32_at(body, 0)?)?,
        },
        FORK => fork(body)?,
        EXIT => exit(body)?,
        MMAP2 => map(body, time_ns)?,
        _ => return None,
    };
    Some(Record { time_ns, event })
}

/// A task outside the PID namespace of the event's opener shows as 0 or -1.
fn visible(tgid: u32) -> Option<u32> {
    (tgid != 0 && tgid != u32::MAX).then_some(tgid)
}

fn fork(body: &[u8]) -> Option<Event> {
    let (child, parent) = (visible(u32_at(body, 0)?)?, u32_at(body, 4)?);
    (child != parent).then_some(Event::Fork { child, parent })
}

fn exit(body: &[u8]) -> Option<Event> {
    let (tgid, tid) = (visible(u32_at(body, 0)?)?, u32_at(body, 8)?);
    (tgid == tid).then_some(Event::Exit { tgid })
}

fn map(body: &[u8], time_ns: u64) -> Option<Event> {
    let tgid = visible(u32_at(body, 0)?)?;
    let start = u64_at(body, 8)?;
    let end = start.checked_add(u64_at(body, 16)?)?;
    let key = FileKey {
        major: u32_at(body, 32)?,
        minor: u32_at(body, 36)?,
        inode: u64_at(body, 40)?,
    };
    let name = body.get(64..)?;
    let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
    if start >= end {
        return None;
    }
    let mapping = Mapping {
        start,
        end,
        offset: u64_at(body, 24)?,
        backing: backing_of(name, key),
        path: name.into(),
        from_ns: time_ns,
        until_ns: u64::MAX,
    };
    Some(Event::Map { tgid, mapping })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::Backing;
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER + body.len() + TRAILER).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes.extend(u64::MAX.to_ne_bytes());
        bytes.extend(777u64.to_ne_bytes());
        bytes.extend(1u64.to_ne_bytes());
        bytes
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    fn mmap2(name: &[u8]) -> Vec<u8> {
        let mut body = words(&[
            42, 43, 0x1000, 0, 0x2000, 0, 0x3000, 0, 8, 1, 99, 0, 5, 0, 5, 2,
        ]);
        body.extend(name);
        body.resize(body.len().next_multiple_of(8), 0);
        record(MMAP2, 0, &body)
    }

    #[test]
    fn a_mapping() {
        let Record { time_ns, event } = parse(&mmap2(b"/lib/libc.so.6\0")).unwrap();
        assert_eq!(time_ns, 777);
        let Event::Map { tgid, mapping } = event else {
            panic!("{event:?}")
        };
        assert_eq!(
            (tgid, mapping.start, mapping.end, mapping.offset),
            (42, 0x1000, 0x3000, 0x3000)
        );
        assert_eq!(
            mapping.backing,
            Backing::File(FileKey {
                major: 8,
                minor: 1,
                inode: 99
            })
        );
        assert_eq!(&*mapping.path, b"/lib/libc.so.6");
        assert_eq!(mapping.from_ns, 777);
    }

    #[test]
    fn processes_but_not_threads() {
        let event =
            |kind, misc, body: &[u32]| parse(&record(kind, misc, &words(body))).map(|r| r.event);
        assert_eq!(
            event(FORK, 0, &[7, 3, 7, 3, 0, 0]),
            Some(Event::Fork {
                child: 7,
                parent: 3
            })
        );
        assert_eq!(event(FORK, 0, &[3, 3, 9, 3, 0, 0]), None);
        assert_eq!(
            event(EXIT, 0, &[7, 3, 7, 3, 0, 0]),
            Some(Event::Exit { tgid: 7 })
        );
        assert_eq!(event(EXIT, 0, &[7, 3, 8, 3, 0, 0]), None);
        assert_eq!(
            event(COMM, MISC_COMM_EXEC, &[7, 7, 0x6861_6d65, 0]),
            Some(Event::Exec { tgid: 7 })
        );
        assert_eq!(event(COMM, 0, &[7, 7, 0x6861_6d65, 0]), None);
        assert_eq!(event(LOST, 0, &[0, 0, 12, 0]), Some(Event::Lost(12)));
        assert_eq!(event(FORK, 0, &[u32::MAX, 3, 7, 3, 0, 0]), None);
    }

    #[test]
    fn torn_records_are_no_records() {
        let whole = mmap2(&[b'x'; 300]);
        for end in 0..whole.len() {
            parse(&whole[..end]);
        }
        assert_eq!(parse(&[0; HEADER + TRAILER]), None);
    }
}
