//! The kernel's stream of exec, fork, exit and executable mmap: perf events that count nothing.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings as perf;

use super::{Kind, Mapping};

/// Data pages tried, largest first: what may be locked is limited. Powers of two, as the kernel wants them.
const PAGES: [usize; 3] = [128, 32, 8];

/// A change of some process's mappings.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Something executable was mapped.
    Map {
        /// The process.
        tgid: u32,
        /// The new mapping.
        mapping: Mapping,
    },
    /// The process has a new program: everything mapped before is gone.
    Exec {
        /// The process.
        tgid: u32,
    },
    /// A new process with its parent's mappings.
    Fork {
        /// The parent.
        parent: u32,
        /// The new process.
        child: u32,
    },
    /// A process's leader has ended.
    Exit {
        /// The process.
        tgid: u32,
    },
}

/// The stream of all CPUs.
pub(super) struct Sideband {
    rings: Vec<Ring>,
    lost: u64,
}

impl Sideband {
    pub(super) fn open() -> io::Result<Self> {
        let mut rings = Vec::new();
        for cpu in crate::perf::online_cpus() {
            match Ring::open(cpu) {
                Ok(ring) => rings.push(ring),
                // Went offline meanwhile.
                Err(err) if err.raw_os_error() == Some(libc::ENODEV) => {}
                Err(err) => return Err(err),
            }
        }
        Ok(Self { rings, lost: 0 })
    }

    /// Everything since the last call, in the order in which it happened.
    pub(super) fn take(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for ring in &mut self.rings {
            ring.read(|record| match parse(record) {
                Some(Record::Change(time_ns, change)) => changes.push((time_ns, change)),
                Some(Record::Lost(count)) => self.lost += count,
                None => {}
            });
        }
        changes.sort_by_key(|(time_ns, _)| *time_ns);
        changes.into_iter().map(|(_, change)| change).collect()
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

enum Record {
    Change(u64, Change),
    Lost(u64),
}

/// `sample_id` with TID and TIME at the end of every record.
const TRAILER: usize = 16;

/// Layouts: `perf_event_open(2)`, "MMAP layout".
fn parse(record: &[u8]) -> Option<Record> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let misc = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
    let kind = u32_at(0)?;
    if kind == perf::PERF_RECORD_LOST {
        return Some(Record::Lost(u64_at(16)?));
    }
    let time_ns = u64_at(record.len().checked_sub(8)?)?;
    let change = match kind {
        perf::PERF_RECORD_MMAP2 => {
            let end = u64_at(16)?.checked_add(u64_at(24)?)?;
            let protection = i32::from_ne_bytes(record.get(64..68)?.try_into().ok()?);
            if protection & libc::PROT_EXEC == 0 {
                return None;
            }
            let path = record.get(72..record.len() - TRAILER)?;
            let path = path.split(|byte| *byte == 0).next()?;
            let kind = Kind::of(path, u64_at(48)?);
            let mapping = Mapping {
                start: u64_at(16)?,
                end,
                file_offset: u64_at(32)?,
                since_ns: time_ns,
                kind,
            };
            Change::Map {
                tgid: u32_at(8)?,
                mapping,
            }
        }
        perf::PERF_RECORD_COMM if u32::from(misc) & perf::PERF_RECORD_MISC_COMM_EXEC != 0 => {
            Change::Exec { tgid: u32_at(8)? }
        }
        perf::PERF_RECORD_FORK => {
            let (child, parent) = (u32_at(8)?, u32_at(12)?);
            // New threads share everything.
            if child == parent {
                return None;
            }
            Change::Fork { parent, child }
        }
        perf::PERF_RECORD_EXIT if u32_at(8)? == u32_at(16)? => Change::Exit { tgid: u32_at(8)? },
        _ => return None,
    };
    Some(Record::Change(time_ns, change))
}

/// One CPU's ring buffer.
struct Ring {
    _event: OwnedFd,
    base: NonNull<u8>,
    page: usize,
    data_bytes: usize,
}

impl Ring {
    fn open(cpu: i32) -> io::Result<Self> {
        let mut attr = perf::perf_event_attr {
            type_: perf::PERF_TYPE_SOFTWARE,
            size: u32::try_from(size_of::<perf::perf_event_attr>()).expect("a small struct"),
            config: perf::PERF_COUNT_SW_DUMMY.into(),
            sample_type: u64::from(perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME),
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.set_watermark(1);
        let event = crate::perf::open(&attr, -1, cpu)?;
        // SAFETY: takes no pointers.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mut refused = io::Error::from_raw_os_error(libc::ENOMEM);
        for pages in PAGES {
            let bytes = page * (1 + pages);
            // SAFETY: a new shared mapping of the event's buffer, at an address of the kernel's choice.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    event.as_raw_fd(),
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                let base = NonNull::new(base.cast()).expect("mmap does not return 0");
                return Ok(Self {
                    _event: event,
                    base,
                    page,
                    data_bytes: page * pages,
                });
            }
            refused = io::Error::last_os_error();
        }
        Err(refused)
    }

    /// Hands over every whole record that is there.
    fn read(&mut self, mut each: impl FnMut(&[u8])) {
        let control = self.base.as_ptr().cast::<perf::perf_event_mmap_page>();
        // SAFETY: the first page of the mapping is the control page; head and tail are 64-bit words that the kernel
        // reads and writes atomically.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*control).data_head),
                AtomicU64::from_ptr(&raw mut (*control).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        let mut record = Vec::new();
        while end.wrapping_sub(at) >= 8 {
            self.copy(at, 8, &mut record);
            let bytes = usize::from(u16::from_ne_bytes([record[6], record[7]]));
            if bytes < 8 || end.wrapping_sub(at) < bytes as u64 {
                break;
            }
            self.copy(at, bytes, &mut record);
            each(&record);
            at = at.wrapping_add(bytes as u64);
        }
        tail.store(at, Ordering::Release);
    }

    fn copy(&self, at: u64, bytes: usize, record: &mut Vec<u8>) {
        record.clear();
        let at = usize::try_from(at % self.data_bytes as u64).expect("below the buffer's size");
        let first = bytes.min(self.data_bytes - at);
        // SAFETY: both pieces lie inside the data pages behind the control page; the kernel does not write to what is
        // between tail and head.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            record.extend_from_slice(std::slice::from_raw_parts(data.add(at), first));
            record.extend_from_slice(std::slice::from_raw_parts(data, bytes - first));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in open().
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.data_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_records_are_no_records() {
        let mut record = [0_u8; 96];
        record[0] = u8::try_from(perf::PERF_RECORD_MMAP2).unwrap();
        for length in 0..record.len() {
            assert!(
                !matches!(parse(&record[..length]), Some(Record::Change(..))),
                "{length}"
            );
        }
    }
}
