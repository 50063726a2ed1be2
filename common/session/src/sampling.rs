//! An engine that looks in windows: in one for all of the time or, with a budget, in many.

use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use budget::meter::Meter;
use budget::{Budget, Sampler, Windowed, store};
use host::clock::Edges;

use crate::closing::Closing;
use crate::progress::State;
use crate::{Engine, Options, Setup, Tool};

/// A tool's part of a run, beside the edges of its windows.
pub trait Collector: Windowed {
    /// The same as [`Engine::describe`].
    fn describe(&self) -> String {
        String::new()
    }

    /// The same as [`Engine::fds`].
    fn fds(&self) -> Vec<RawFd>;

    /// Gets ready for the first window.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run, as those of all that follows.
    fn get_ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Takes in what is new. Work that can be done later is to be, unless it `can_afford_more`.
    ///
    /// # Errors
    ///
    /// The tool's own.
    fn look_around(&mut self, can_afford_more: bool) -> Result<State>;

    /// Writes the interval `window`, the windows of which have been taken; `sampler` says how much of the time they were.
    ///
    /// # Errors
    ///
    /// The tool's own, and of what is written to.
    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()>;

    /// The same as [`Engine::closing`].
    ///
    /// # Errors
    ///
    /// The tool's own.
    fn closing(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<Closing>;
}

/// A tool whose engine looks in windows.
pub trait Sampled: Options {
    /// Its part of a run.
    type Collector<'a>: Collector
    where
        Self: 'a;

    /// Loads its programs, and attaches those that no window does.
    ///
    /// # Errors
    ///
    /// The kernel's refusals, with the remedy.
    fn collector<'a>(&'a self, setup: &Setup<'a>) -> Result<Self::Collector<'a>>;
}

impl<T: Sampled> Tool for T {
    type Engine<'a>
        = Sampling<'a, T::Collector<'a>>
    where
        Self: 'a;

    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Self::Engine<'a>> {
        let (collector, asked) = (self.collector(setup)?, self.asked());
        Ok(Sampling {
            collector,
            who: (setup.tool, asked.common.verbose),
            budget: *asked.budget,
            meter: setup.meter,
            sampler: None,
        })
    }
}

/// A collector at work.
pub struct Sampling<'a, C> {
    collector: C,
    who: (&'static str, bool),
    budget: Budget,
    meter: &'a Meter,
    /// The times of its looks, from the opening on.
    sampler: Option<Sampler<'a>>,
}

const NOT_OPEN: &str = "it is not open";

impl<C: Collector> Engine for Sampling<'_, C> {
    fn open(&mut self, length: Option<Duration>) -> Result<u64> {
        self.collector.get_ready()?;
        let collector = &mut self.collector;
        let sampler = self
            .budget
            .sampler(self.who, length, self.meter, collector)?;
        Ok(self.sampler.insert(sampler).began_ns())
    }

    fn describe(&self) -> String {
        self.collector.describe()
    }

    fn fds(&self) -> Vec<RawFd> {
        self.collector.fds()
    }

    fn step(&mut self) -> Result<State> {
        let sampler = self.sampler.as_mut().context(NOT_OPEN)?;
        sampler.step(&mut self.collector)?;
        let (next, can_afford_more) = (sampler.next(), sampler.can_afford_more());
        let state = self.collector.look_around(can_afford_more)?;
        Ok(State { next, ..state })
    }

    fn close_at(&mut self, end_ns: u64) -> Result<()> {
        if !self.budget.is_limited() {
            for told in self.collector.edges()? {
                store(told.end_ns, end_ns);
            }
        }
        Ok(())
    }

    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let sampler = self.sampler.as_mut().context(NOT_OPEN)?;
        *end_ns = sampler.end(&mut self.collector)?;
        let end_ns = *end_ns;
        self.collector.report(sampler, Edges { start_ns, end_ns })
    }

    fn closing(&mut self, window: Edges) -> Result<Closing> {
        let sampler = self.sampler.as_ref().context(NOT_OPEN)?;
        self.collector.closing(sampler, window)
    }
}
