//! An engine beside the account's: it tells more of some lines, and no line is made of it.
//!
//! It counts exactly or not at all. Its window opens with that of the others. It goes on while those look by windows of a budget, and
//! ends with the run, or where it has cost its own part of the budget: what it says is of the time until then.

use std::os::fd::RawFd;

use anyhow::Result;
use budget::meter::{Meter, cpus_online};
use budget::{Programs, Sampler, Told, Window, Windowed};
use host::clock::{Edges, monotonic_ns};
use libbpf_rs::Object;
use profile::losses::Losses;
use profile::units;
use session::closing::Closing;
use session::progress::State;
use session::sampling::Collector;

/// A credit begins with what so much time may cost, ns.
const BEGINS_WITH_NS: u64 = 1_000_000_000;

/// An engine that is loaded and attached.
pub(crate) trait Exact {
    /// Its counts, once it has been halted.
    type Found;

    /// Its programs and maps.
    fn object(&self) -> &Object;

    /// The place where its programs read since when events count, and one that nobody reads.
    ///
    /// # Errors
    ///
    /// The engine's own; they end the run, as those of all that follows.
    fn told<'s>(&'s mut self, end_ns: &'s mut u64) -> Result<Told<'s>>;

    /// Time counts.
    fn begin(&mut self) {}

    /// Takes in what is new.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn look(&mut self) -> Result<()> {
        Ok(())
    }

    /// Counts no longer.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn halt(&mut self) -> Result<()>;

    /// Costs nothing any more, after it has been halted: the kernel may take its time to detach programs.
    fn detach(&mut self) {}

    /// Its counts and losses, after it has been halted.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn found(&mut self) -> Result<(Self::Found, Losses)>;
}

/// Findings of an engine beside the others.
pub(crate) struct Seen<T> {
    pub(crate) found: T,
    pub(crate) losses: Losses,
    /// End of the time that it counted, ns, where its part of the budget did not last.
    pub(crate) until_ns: Option<u64>,
}

impl<T> Seen<T> {
    /// The factor that makes its times those of all the window.
    pub(crate) fn scale(&self, window: Edges) -> f64 {
        let seen_ns = |until_ns: u64| until_ns.saturating_sub(window.start_ns).max(1);
        let seen = self
            .until_ns
            .map(|until_ns| window.ns() as f64 / seen_ns(until_ns) as f64);
        seen.unwrap_or(1.0)
    }

    /// Its findings, with that factor.
    pub(crate) fn scaled(&self, window: Edges) -> (&T, f64) {
        (&self.found, self.scale(window))
    }

    /// Adds its losses, and a note on what it was to see where it did not see all of a window.
    pub(crate) fn tell(
        &self,
        what: &str,
        window: Edges,
        losses: &mut Losses,
        notes: &mut Vec<String>,
    ) {
        losses.absorb(&self.losses);
        notes.extend(self.note(window, what));
    }

    fn note(&self, window: Edges, what: &str) -> Option<String> {
        let seen_ns = self.until_ns?.saturating_sub(window.start_ns);
        let [seen, all] = [seen_ns, window.ns()].map(units::duration);
        Some(format!(
            "{what} were traced for {seen} of {all}: more is beyond the budget"
        ))
    }
}

/// Such an engine at work.
pub(crate) struct Beside<'a, E> {
    engine: E,
    meter: &'a Meter,
    /// CPU time that it may cost, of each ns; `None`: there is no budget.
    allowed: Option<f64>,
    is_told: bool,
    end_ns: u64,
    /// Since when time has counted, and what it had cost by then, ns.
    began: Option<(u64, u64)>,
    halted_ns: Option<u64>,
}

impl<'a, E: Exact> Beside<'a, E> {
    /// One that may cost its `share` of a budget of so much `percent` of the machine.
    pub(crate) fn new(engine: E, meter: &'a Meter, (share, percent): (f64, Option<f64>)) -> Self {
        let allowed = percent.map(|percent| share * budget::allowed(percent, cpus_online()));
        Self {
            engine,
            meter,
            allowed,
            is_told: false,
            end_ns: 0,
            began: None,
            halted_ns: None,
        }
    }

    /// Ends its time, if that has not ended yet.
    pub(crate) fn seen(&mut self) -> Result<Seen<E::Found>> {
        let until_ns = self.halted_ns;
        if until_ns.is_none() {
            self.engine.halt()?;
        }
        let (found, losses) = self.engine.found()?;
        Ok(Seen {
            found,
            losses,
            until_ns,
        })
    }

    fn spent_ns(&self) -> u64 {
        self.meter.spent(&self.programs(), 0).events_ns
    }

    fn is_used_up(&self, (began_ns, before_ns): (u64, u64), now_ns: u64) -> bool {
        self.allowed.is_some_and(|allowed| {
            let credit = allowed * (now_ns - began_ns + BEGINS_WITH_NS) as f64;
            (self.spent_ns() - before_ns) as f64 > credit
        })
    }
}

impl<E: Exact> Windowed for Beside<'_, E> {
    fn programs(&self) -> Vec<Programs<'_>> {
        vec![Programs {
            object: self.engine.object(),
            gated: &[],
        }]
    }

    fn prepare(&mut self, _first: bool) -> Result<()> {
        Ok(())
    }

    fn edges(&mut self) -> Result<Vec<Told<'_>>> {
        // Windows after the first are not its own, nor is the end of that.
        if std::mem::replace(&mut self.is_told, true) {
            return Ok(Vec::new());
        }
        Ok(vec![self.engine.told(&mut self.end_ns)?])
    }

    fn shut(&mut self) -> Result<u64> {
        Ok(0)
    }

    fn take(&mut self, _window: &Window) -> Result<()> {
        Ok(())
    }
}

impl<E: Exact> Collector for Beside<'_, E> {
    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn look_around(&mut self, can_afford_more: bool) -> Result<State> {
        if self.halted_ns.is_some() {
            return Ok(State::default());
        }
        let now_ns = monotonic_ns();
        if self.began.is_none() {
            self.engine.begin();
        }
        if can_afford_more {
            self.engine.look()?;
        }
        let began = self.began.unwrap_or_else(|| (now_ns, self.spent_ns()));
        self.began = Some(began);
        if self.is_used_up(began, now_ns) {
            self.engine.halt()?;
            self.halted_ns = Some(monotonic_ns());
            self.engine.detach();
        }
        Ok(State::default())
    }

    fn report(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<()> {
        Ok(())
    }

    fn closing(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<Closing> {
        Ok(Closing::default())
    }
}
