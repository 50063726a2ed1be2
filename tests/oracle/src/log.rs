//! One log in the kernel.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{OpenObject, RingBufferBuilder};

use crate::event::Event;
use crate::skeleton::{OracleSkel, OracleSkelBuilder};

/// A part of the kernel whose events can be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Switches and wakeups.
    Scheduler,
}

impl Engine {
    /// Its programs in `bpf/`.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Scheduler => &["log_switch", "log_wakeup", "log_wakeup_new"],
        }
    }
}

/// An attached log. It holds a minute of ordinary events, or a few seconds of the heaviest.
pub struct Log {
    skel: OracleSkel<'static>,
    engines: &'static [Engine],
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn attach(engines: &'static [Engine]) -> Result<Self> {
        // A test makes two, and ends.
        let storage = Box::leak(Box::new(MaybeUninit::<OpenObject>::uninit()));
        let mut open = OracleSkelBuilder::default().open(storage)?;
        for mut program in open.open_object_mut().progs_mut() {
            let is_wanted = |name: &&str| program.name() == *name;
            let mut wanted = engines.iter().flat_map(|engine| engine.programs());
            let autoload = wanted.any(is_wanted);
            program.set_autoload(autoload);
        }
        let mut skel = open.load().context("load the oracle")?;
        skel.attach().context("attach the oracle")?;
        Ok(Self { skel, engines })
    }

    pub(crate) fn engines(&self) -> &'static [Engine] {
        self.engines
    }

    pub(crate) fn begin(&mut self) -> Result<()> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.context("no .bss")?.is_on = 1;
        Ok(())
    }

    /// Ends it. Its events by time.
    pub(crate) fn take(self) -> Result<Vec<Event>> {
        let Self { mut skel, .. } = self;
        let bss = skel.maps.bss_data.as_deref_mut().context("no .bss")?;
        bss.is_on = 0;
        let lost = bss.lost;
        let events = RefCell::new(Ok(Vec::new()));
        let mut ring = RingBufferBuilder::new();
        ring.add(&skel.maps.events, |bytes| {
            let mut events = events.borrow_mut();
            match (&mut *events, Event::parse(bytes)) {
                (Ok(events), Ok(event)) => events.push(event),
                (Ok(_), Err(error)) => *events = Err(error),
                (Err(_), _) => {}
            }
            0
        })?;
        ring.build()?.consume().context("read the oracle's log")?;
        ensure!(lost == 0, "the oracle lost {lost} events");
        let mut events = events.into_inner()?;
        // Each CPU's are in order; of two CPUs' one may have been reserved first and stamped later.
        events.sort_by_key(|event| event.ns);
        Ok(events)
    }
}
