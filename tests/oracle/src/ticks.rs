//! Samples of a clock of each CPU's, as profile takes them: how many a thread's turns on CPUs come to.
//!
//! A second clock, of a quarter of the period, says when a CPU's clocks ticked: a hypervisor may halt it, and call that stolen or
//! not. A CPU handles its timers in the order in which they are due. A tick of the tool's that is due between two ticks of this
//! clock is therefore there before the second of them.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use anyhow::Result;

use crate::event::{Event, Kind};
use crate::log::{Engine, Log};

/// Ticks of this clock in a period of the tool's.
const FINER: u64 = 4;

/// A clock that ticks, with a log of who runs.
#[derive(Debug)]
pub struct Clock {
    log: Log,
    period_ns: u64,
}

impl Clock {
    /// To be called before the work begins: a clock for a tool that samples once in so many ns of a CPU.
    ///
    /// # Errors
    ///
    /// The log cannot be attached.
    pub fn start(period_ns: u64) -> Result<Self> {
        let mut log = Log::attach(&[Engine::Switches, Engine::Ticks], None)?;
        log.tick(period_ns / FINER)?;
        log.begin()?;
        Ok(Self { log, period_ns })
    }

    /// To be called when the work is over.
    ///
    /// # Errors
    ///
    /// The log is not whole.
    pub fn take(mut self) -> Result<Ticks> {
        self.log.end()?;
        Ok(Ticks {
            events: self.log.take()?,
            period_ns: self.period_ns,
        })
    }
}

/// Events of the clock and of the scheduler.
#[derive(Debug)]
pub struct Ticks {
    /// By time.
    events: Vec<Event>,
    period_ns: u64,
}

impl Ticks {
    /// The least and the most samples that the tool has of a thread, of a part of the time (ns).
    pub fn samples(&self, tid: u32, when: &Range<u64>) -> RangeInclusive<u64> {
        let mut turns: HashMap<u32, Turn> = HashMap::new();
        let (mut least, mut most) = (0, 0);
        for event in self.events.iter().filter(|event| when.contains(&event.ns)) {
            let turn = turns.entry(event.cpu).or_insert_with(|| Turn::of(when));
            match event.kind {
                Kind::Switch { prev, next, .. } => {
                    if prev == tid {
                        turn.is_here();
                    }
                    let [fewest, greatest] = turn.end(event.ns, self.period_ns);
                    least += fewest;
                    most += greatest;
                    turn.last_ns = event.ns;
                    if next == tid {
                        turn.is_here();
                    }
                }
                Kind::Tick { tid: found } => {
                    if found == tid {
                        turn.is_here();
                        least += turn.tick(event.ns, self.period_ns);
                    }
                    turn.last_ns = event.ns;
                }
                _ => {}
            }
        }
        for turn in turns.values_mut() {
            let [fewest, greatest] = turn.end(when.end.min(self.end_ns()), self.period_ns);
            least += fewest;
            most += greatest;
        }
        least..=most
    }

    /// The same of the whole time.
    pub fn all_samples(&self, tid: u32) -> RangeInclusive<u64> {
        self.samples(tid, &(0..u64::MAX))
    }

    fn end_ns(&self) -> u64 {
        self.events.last().map_or(0, |event| event.ns)
    }
}

/// A thread's turn on a CPU, if it has one.
struct Turn {
    /// The CPU's last event.
    last_ns: u64,
    /// It began then, or later where no switch showed it.
    since_ns: Option<u64>,
    /// Ticks without a gap: the first and the last, ns.
    ticked_ns: Option<(u64, u64)>,
}

impl Turn {
    fn of(when: &Range<u64>) -> Self {
        Self {
            last_ns: when.start,
            since_ns: None,
            ticked_ns: None,
        }
    }

    fn is_here(&mut self) {
        self.since_ns.get_or_insert(self.last_ns);
    }

    /// Gives the samples that are certain, if a gap came before.
    fn tick(&mut self, ns: u64, period_ns: u64) -> u64 {
        let gap_ns = 2 * period_ns / FINER;
        match &mut self.ticked_ns {
            Some((_, last_ns)) if ns - *last_ns <= gap_ns => {
                *last_ns = ns;
                0
            }
            ticked => {
                let before = ticked.replace((ns, ns));
                certain(before, period_ns)
            }
        }
    }

    /// Gives the least and the most samples of the turn since its last gap, and of all of it.
    fn end(&mut self, ns: u64, period_ns: u64) -> [u64; 2] {
        let least = certain(self.ticked_ns.take(), period_ns);
        // The first may have been due before, the last is due at the end.
        let most = |since_ns: u64| ns.saturating_sub(since_ns) / period_ns + 2;
        [least, self.since_ns.take().map_or(0, most)]
    }
}

/// Samples that are due, and taken, between ticks without a gap. The last tick may itself be late by a gap.
fn certain(ticked_ns: Option<(u64, u64)>, period_ns: u64) -> u64 {
    let (first_ns, last_ns) = ticked_ns.unwrap_or_default();
    (last_ns - first_ns).saturating_sub(2 * period_ns / FINER) / period_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch;

    fn tick(ns: u64, tid: u32) -> Event {
        let kind = Kind::Tick { tid };
        Event { ns, cpu: 0, kind }
    }

    fn samples(events: impl IntoIterator<Item = Event>) -> RangeInclusive<u64> {
        let events = events.into_iter().collect();
        let ticks = Ticks {
            events,
            period_ns: 1000,
        };
        ticks.all_samples(7)
    }

    fn ticked(times: impl IntoIterator<Item = u64>) -> Vec<Event> {
        let mut events = vec![switch(0, 0, 7, false)];
        events.extend(times.into_iter().map(|quarter| tick(quarter * 250, 7)));
        events
    }

    #[test]
    fn steady_clock_bounds_both_sides() {
        let mut events = ticked(1..=39);
        events.push(switch(10_000, 7, 0, false));
        // 9.5 periods from tick to tick.
        assert_eq!(samples(events), 9..=12);
    }

    #[test]
    fn halted_cpu_takes_no_samples() {
        let mut events = ticked((1..=9).chain(31..=39));
        events.push(switch(10_000, 7, 0, false));
        // 2 periods, twice.
        assert_eq!(samples(events), 2..=12);
    }

    #[test]
    fn preempted_thread_has_no_samples() {
        let mut events = ticked(1..=7);
        events.push(switch(1800, 7, 8, true));
        events.push(switch(1900, 8, 7, true));
        events.extend(ticked(8..=13).drain(1..));
        events.push(switch(3300, 7, 0, false));
        // 1.5 and 1.25 periods, less half of one.
        assert_eq!(samples(events), 1..=6);
    }

    #[test]
    fn switch_that_nobody_saw_is_made_up_for() {
        let mut events = vec![switch(0, 9, 0, false)];
        events.extend(ticked(9..=20).drain(1..));
        events.push(switch(5100, 7, 0, false));
        assert_eq!(samples(events), 2..=7);
    }
}
