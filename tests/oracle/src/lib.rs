//! The sandwich: two logs of the same events, one attached before a tool and one after it.
//!
//! Whatever a hypervisor, an interrupt or another probe does between two programs on one tracepoint, the tool's time of an event
//! lies between the logs' times of it. So do the sums of its intervals, without any tolerance: disturbance widens the bracket
//! by exactly what it was. Needs Linux 5.18 or later (fa2c3254d7cf, the state of who leaves).

use anyhow::Result;

pub use bracket::{Bracket, Pair};
pub use event::{Call, Event, Kind, Request, Step};
pub use log::{Engine, Log};
pub use span::Span;

pub mod behind;
pub mod bracket;
pub mod calls;
mod event;
pub mod futex;
pub mod kernel_lock;
mod log;
mod matched;
pub mod offcpu;
pub mod requests;
pub mod run_queue;
mod span;
pub mod ticks;

/// The skeleton of `bpf/oracle.bpf.c`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::wildcard_imports,
    clippy::too_many_lines,
    clippy::redundant_closure_for_method_calls
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/oracle.skel.rs"));
}

/// A log attached before the tool.
#[derive(Debug)]
pub struct Below(Log);

/// With one attached after it, too.
#[derive(Debug)]
pub struct Around {
    before: Log,
    after: Log,
}

/// What the two logs hold.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Of the log attached before the tool: its times are not later than the tool's.
    pub before: Vec<Event>,
    /// Of the one attached after it: not earlier.
    pub after: Vec<Event>,
    /// Events that the kernel kept from either, because they came, in an interrupt, upon its own work.
    pub missed: u64,
}

impl Below {
    /// To be called before the tool attaches: a log of what these engines do.
    ///
    /// # Errors
    ///
    /// The log cannot be attached.
    pub fn attach(engines: &'static [Engine]) -> Result<Self> {
        Ok(Self(Log::attach(engines, None)?))
    }

    /// The same for this process, and those that it started and is the parent of, alone: others may fill a log in a second. `process`
    /// is its ID as the kernel has it. Requests and ticks are everybody's all the same.
    ///
    /// # Errors
    ///
    /// The log cannot be attached.
    pub fn attach_to(engines: &'static [Engine], process: u32) -> Result<Self> {
        Ok(Self(Log::attach(engines, Some(process))?))
    }

    /// To be called when the tool has attached. Both logs begin.
    ///
    /// # Errors
    ///
    /// As [`Self::attach`].
    pub fn around(self) -> Result<Around> {
        let mut around = Around {
            after: self.0.again()?,
            before: self.0,
        };
        around.before.begin()?;
        around.after.begin()?;
        Ok(around)
    }
}

impl Around {
    /// Ends both logs.
    ///
    /// # Errors
    ///
    /// When one of them is not whole.
    pub fn take(mut self) -> Result<Logs> {
        self.before.end()?;
        self.after.end()?;
        Ok(Logs {
            missed: self.before.missed()? + self.after.missed()?,
            before: self.before.take()?,
            after: self.after.take()?,
        })
    }
}
