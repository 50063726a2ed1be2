//! Engines of several tools at work as one: over one window, by one clock, within one budget.
//!
//! All of their windows open at one instant and shut at one, for the BPF side goes by the clock and is told of each a moment
//! before. With a budget one sampler opens and shuts them all, and the cost of all is what it keeps below the limit. The parts'
//! own options have to say the same of the budget as the tool's that they are parts of. A collection is one interval: nothing counts
//! after its report.

use std::os::fd::RawFd;

use anyhow::Result;
use budget::{LeftOut, Programs, Sampler, Told, Window, Windowed};
use host::clock::Edges;

use crate::closing::Closing;
use crate::progress::State;
use crate::sampling::Collector;

/// Several tools' collectors, and what becomes of what they find.
pub trait Together {
    /// Them, each time in the same order.
    fn parts(&self) -> Vec<&dyn Collector>;

    /// The same.
    fn parts_mut(&mut self) -> Vec<&mut dyn Collector>;

    /// The same as [`Collector::look_around`], besides the collectors' own.
    ///
    /// # Errors
    ///
    /// The implementation's own.
    fn look_around(&mut self, _can_afford_more: bool) -> Result<()> {
        Ok(())
    }

    /// The same as [`Collector::describe`].
    fn describe(&self) -> String {
        String::new()
    }

    /// The same as [`Collector::report`].
    ///
    /// # Errors
    ///
    /// The collectors' own.
    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()>;

    /// The same as [`Collector::closing`].
    ///
    /// # Errors
    ///
    /// The collectors' own.
    fn closing(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<Closing>;
}

/// All of them as one collector.
pub struct AsOne<T>(pub T);

impl<T: Together> Windowed for AsOne<T> {
    fn programs(&self) -> Vec<Programs<'_>> {
        let parts = self.0.parts().into_iter();
        parts.flat_map(Windowed::programs).collect()
    }

    fn trap_ns(&self) -> u64 {
        // No two of them have programs on functions.
        self.0.parts().iter().map(|part| part.trap_ns()).sum()
    }

    fn is_ready(&self) -> bool {
        self.0.parts().iter().all(|part| part.is_ready())
    }

    fn settles(&self) -> bool {
        self.0.parts().iter().any(|part| part.settles())
    }

    fn leave_out(&mut self, below_ns: u64) -> Result<bool> {
        let mut can = false;
        for part in self.0.parts_mut() {
            can |= part.leave_out(below_ns)?;
        }
        Ok(can)
    }

    fn left_out(&self) -> Result<LeftOut> {
        let mut sum = LeftOut::default();
        for part in self.0.parts() {
            let left_out = part.left_out()?;
            sum.waits += left_out.waits;
            sum.ns += left_out.ns;
            sum.of_ns += left_out.of_ns;
        }
        Ok(sum)
    }

    fn prepare(&mut self, first: bool) -> Result<()> {
        let mut parts = self.0.parts_mut().into_iter();
        parts.try_for_each(|part| part.prepare(first))
    }

    fn edges(&mut self) -> Result<Vec<Told<'_>>> {
        let mut all = Vec::new();
        for part in self.0.parts_mut() {
            all.extend(part.edges()?);
        }
        Ok(all)
    }

    fn shut(&mut self) -> Result<u64> {
        let mut latest_ns = 0;
        for part in self.0.parts_mut() {
            latest_ns = part.shut()?.max(latest_ns);
        }
        Ok(latest_ns)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let mut parts = self.0.parts_mut().into_iter();
        parts.try_for_each(|part| part.take(window))
    }
}

impl<T: Together> Collector for AsOne<T> {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn fds(&self) -> Vec<RawFd> {
        let parts = self.0.parts().into_iter();
        parts.flat_map(Collector::fds).collect()
    }

    fn get_ready(&mut self) -> Result<()> {
        let mut parts = self.0.parts_mut().into_iter();
        parts.try_for_each(Collector::get_ready)
    }

    fn look_around(&mut self, can_afford_more: bool) -> Result<State> {
        let mut all = State::default();
        for part in self.0.parts_mut() {
            let state = part.look_around(can_afford_more)?;
            all.events += state.events;
            all.lost += state.lost;
            all.stacks = all
                .stacks
                .into_iter()
                .chain(state.stacks)
                .reduce(|a, b| a + b);
        }
        self.0.look_around(can_afford_more)?;
        Ok(all)
    }

    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()> {
        self.0.report(sampler, window)
    }

    fn closing(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<Closing> {
        self.0.closing(sampler, window)
    }
}
