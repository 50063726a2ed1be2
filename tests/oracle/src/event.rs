//! One event.

use anyhow::{Context, Result, bail};

use crate::skeleton::types;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A CPU goes from one thread to another.
    Switch {
        /// Who leaves it; 0: nobody.
        prev: u32,
        /// Who gets it; 0: nobody.
        next: u32,
        /// `prev` would have liked to keep it.
        runnable: bool,
    },
    /// A thread is made runnable, if it is not yet.
    Wakeup {
        /// The thread.
        tid: u32,
    },
}

/// An event in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
    /// Where it happened.
    pub cpu: u32,
    /// What.
    pub kind: Kind,
}

// SAFETY: integers without padding.
unsafe impl plain::Plain for types::event {}

impl Event {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut event = types::event::default();
        plain::copy_from_bytes(&mut event, bytes)
            .ok()
            .context("an event is too short")?;
        let kind = match event.kind {
            1 => Kind::Switch {
                prev: event.thread,
                next: event.other,
                runnable: event.detail != 0,
            },
            2 => Kind::Wakeup { tid: event.thread },
            kind => bail!("event of kind {kind}"),
        };
        Ok(Self {
            ns: event.ns,
            cpu: event.cpu,
            kind,
        })
    }
}

/// On CPU 0.
#[cfg(test)]
pub(crate) fn switch(ns: u64, prev: u32, next: u32, runnable: bool) -> Event {
    let kind = Kind::Switch {
        prev,
        next,
        runnable,
    };
    Event { ns, cpu: 0, kind }
}
