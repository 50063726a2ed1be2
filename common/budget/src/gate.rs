//! Attaches and detaches the programs that events run: one that only finds that it is not wanted costs 50 ns an event,
//! which at a million events a second is the whole budget.
//!
//! A tracepoint that loses its last program gets another one only after an RCU grace period (tracepoint_add_func), and on
//! a crowded machine that takes seconds. So a disabled perf event, which costs next to nothing, holds the place where it
//! can be done; programs of other tracepoints are there for the first window only.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};
use host::perf;
use loader::tracefs;
use perf_event_open_sys::bindings::{PERF_TYPE_TRACEPOINT, perf_event_attr};

use crate::windowed::Programs;

/// `BPF_TRACE_RAW_TP`
const TRACE_RAW_TP: libbpf_sys::bpf_attach_type = libbpf_sys::BPF_TRACE_RAW_TP;

struct Program {
    fd: RawFd,
    /// What keeps the tracepoint from being empty.
    holder: Option<OwnedFd>,
}

/// Programs on BTF tracepoints, attached together.
#[derive(Default)]
pub(super) struct Gate {
    programs: Vec<Program>,
    links: Vec<OwnedFd>,
}

impl Gate {
    /// Programs that were loaded and are not attached. Their objects outlive it.
    pub(super) fn new(all: &[Programs<'_>]) -> Self {
        let wanted = all.iter().flat_map(|programs| {
            let is_gated = |name: &OsStr| programs.gated.iter().any(|gated| name == *gated);
            let loaded = programs.object.progs();
            loaded.filter(move |program| is_gated(program.name()))
        });
        let programs = wanted.filter_map(|program| {
            let fd = program.as_fd().as_raw_fd();
            let section = program.section().to_string_lossy().into_owned();
            let tracepoint = section.trim_start_matches('?').strip_prefix("tp_btf/");
            (fd >= 0).then(|| Program {
                fd,
                holder: tracepoint.and_then(hold),
            })
        });
        Self {
            programs: programs.collect(),
            links: Vec::new(),
        }
    }

    /// Attaches.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(super) fn open(&mut self) -> Result<()> {
        for program in &self.programs {
            // SAFETY: takes numbers and no options; libbpf falls back to what Linux 5.10 has.
            let fd = unsafe {
                libbpf_sys::bpf_link_create(program.fd, 0, TRACE_RAW_TP, std::ptr::null())
            };
            if fd < 0 {
                return Err(std::io::Error::from_raw_os_error(-fd))
                    .context("attach BPF programs again");
            }
            // SAFETY: a new descriptor that nobody else owns.
            self.links.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    }

    /// Detaches.
    pub(super) fn close(&mut self) {
        self.links.clear();
        // Without tracefs there are none: better late than never, then.
        if self.programs.iter().any(|program| program.holder.is_some()) {
            self.programs.retain(|program| program.holder.is_some());
        }
    }
}

/// A perf event on the tracepoint that is never enabled; `None` where the tracepoint has no event, or tracefs is missing.
fn hold(tracepoint: &str) -> Option<OwnedFd> {
    // Those that tools detach from are the scheduler's.
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_TRACEPOINT,
        size: u32::try_from(size_of::<perf_event_attr>()).ok()?,
        config: tracefs::id("sched", tracepoint).ok()?,
        ..perf_event_attr::default()
    };
    attr.set_disabled(1);
    perf::open(&attr, 0, -1).ok()
}
