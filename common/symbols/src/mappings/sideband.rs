//! The kernel's stream of mapping changes: one dummy perf event per CPU, merged by time.

use std::io;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_SAMPLE_CPU, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};

use super::record::{Event, Record, parse};
use super::ring::Ring;

/// 256 KiB per CPU: about 2,000 mappings, ten times what a busy build machine makes in 50 ms.
const PAGES: usize = 64;
/// A record's time is taken a moment before it becomes visible.
const SLACK_NS: u64 = 1_000_000;
/// Above it records are applied without waiting for their order: memory stays bounded.
const MAX_PENDING: usize = 1 << 20;

/// Rings of all CPUs, and the records that are too young to be applied.
#[derive(Debug)]
pub(super) struct Stream {
    rings: Vec<Ring>,
    pending: Vec<Record>,
    /// Everything up to here has been handed out.
    pub(super) taken_ns: u64,
    /// Records that the kernel could not deliver, and rings found torn.
    pub(super) lost: u64,
}

impl Stream {
    /// Opens the stream on every CPU that is online.
    pub(super) fn open() -> io::Result<Self> {
        let mut rings = Vec::new();
        for cpu in host::perf::online_cpus() {
            match open_event(cpu) {
                Ok(event) => rings.push(Ring::map(event, PAGES)?),
                // Went offline in between.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        if rings.is_empty() {
            return Err(io::Error::other("no CPU is online"));
        }
        Ok(Self {
            rings,
            pending: Vec::new(),
            taken_ns: 0,
            lost: 0,
        })
    }

    /// Empties the rings and returns, in time order, every record not younger than `until_ns` or than the slack allows.
    pub(super) fn take(&mut self, now_ns: u64, until_ns: u64) -> Vec<Record> {
        let Self {
            rings,
            pending,
            lost,
            ..
        } = self;
        for ring in rings {
            let torn = ring.drain(|bytes| match parse(bytes) {
                Some(Record {
                    event: Event::Lost(count),
                    ..
                }) => *lost += count,
                Some(record) => pending.push(record),
                None => {}
            });
            *lost += u64::from(torn);
        }
        pending.sort_by_key(|r| r.time_ns);
        let limit = now_ns.saturating_sub(SLACK_NS).max(until_ns);
        self.taken_ns = self.taken_ns.max(limit);
        let ripe = match pending.len() > MAX_PENDING {
            true => pending.len(),
            false => pending.partition_point(|r| r.time_ns <= limit),
        };
        pending.drain(..ripe).collect()
    }
}

fn open_event(cpu: i32) -> io::Result<OwnedFd> {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: u32::try_from(size_of::<perf_event_attr>()).expect("a small struct"),
        config: u64::from(PERF_COUNT_SW_DUMMY),
        sample_type: u64::from(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU),
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    // `mmap` without `mmap_data`: executable mappings only.
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    // We poll; a watermark at the ring's end avoids a wake-up per record.
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
    host::perf::open(&attr, -1, cpu)
}
