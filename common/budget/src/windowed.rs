//! What a tool does at the edges of the windows that its collection is cut into.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use host::clock::monotonic_ns;
use libbpf_rs::Object;

use crate::left_out::LeftOut;
use crate::weighted::Weight;

/// A window that is over, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// On the monotonic clock, ns.
    pub start_ns: u64,
    /// On the monotonic clock, ns.
    pub end_ns: u64,
    /// Length of the stratum of time around it, ns; as long as the window where everything was traced.
    pub stratum_ns: u64,
}

impl Window {
    /// ns
    pub fn open_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// The number of times that each thing seen in it counts.
    pub fn weight(&self) -> Weight {
        Weight::of(self.open_ns(), self.stratum_ns)
    }
}

/// Loaded programs that work together.
pub struct Programs<'a> {
    /// All of them.
    pub object: &'a Object,
    /// Names of those that events run: with a budget they are detached between windows.
    pub gated: &'static [&'static str],
}

/// Places where programs read when events count (window.bpf.h), ns.
pub struct Told<'a> {
    /// 0: they do not.
    pub start_ns: &'a mut u64,
    /// 0: until told.
    pub end_ns: &'a mut u64,
}

impl Told<'_> {
    /// Events count from `at_ns` on, for so long or until told.
    fn open(&mut self, at_ns: u64, length_ns: Option<u64>) {
        // The order matters: the window must not seem open in between.
        store(self.start_ns, 0);
        store(self.end_ns, length_ns.map_or(0, |length| at_ns + length));
        store(self.start_ns, at_ns);
    }
}

/// A tool whose collection can be cut into windows.
pub trait Windowed {
    /// Its loaded programs, by object.
    fn programs(&self) -> Vec<Programs<'_>>;

    /// What each run of its programs on functions of programs costs beside them: a trap, ns.
    fn trap_ns(&self) -> u64 {
        0
    }

    /// Looks whether [`Self::prepare`] can do its work at once, as far as this can be known.
    fn is_ready(&self) -> bool {
        true
    }

    /// Effects of attaching on the machine are to be over before a window of known length opens.
    fn settles(&self) -> bool {
        false
    }

    /// Leaves out the user stacks of waits shorter than this, ns, from now on; 0: of none. Returns whether it can.
    ///
    /// # Errors
    ///
    /// The same as for [`Self::prepare`].
    fn leave_out(&mut self, _below_ns: u64) -> Result<bool> {
        Ok(false)
    }

    /// What has been left out so far.
    ///
    /// # Errors
    ///
    /// The same as for [`Self::prepare`].
    fn left_out(&self) -> Result<LeftOut> {
        Ok(LeftOut::default())
    }

    /// The programs are attached: takes stock of what is under way before a window. After the `first` one, programs on tracepoints
    /// without a perf event (sched_exit_tp) are not.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn prepare(&mut self, first: bool) -> Result<()>;

    /// Variables by which its programs are told of a window's edges, by object.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn edges(&mut self) -> Result<Vec<Told<'_>>>;

    /// Lets time count no longer; without a budget, for what comes next. Returns when it ended, at the latest, ns.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn shut(&mut self) -> Result<u64>;

    /// The programs are detached: takes what the window has brought.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn take(&mut self, window: &Window) -> Result<()>;
}

/// Time between attaching and a window, ns. Attaching stops all CPUs for moments, and we have had one: whoever goes on, or has work
/// that came meanwhile, does so then, and it would stand for all the time around. Measured with fio at 40,000 requests/s: estimated
/// were 1.23 to 1.39 of them without a pause, 1.06 to 1.10 with one of 1 ms, 1.02 with 3 ms, 1.00 with 6 ms.
const SETTLE_NS: u64 = 3_000_000;

/// So long before an edge all of several objects are told of it, ns. Telling takes some 100 ns each, unless somebody else gets the
/// CPU in between.
const LEAD_NS: u64 = 2_000_000;

/// Lets time count for `windowed`, for `length_ns` or until told; for all of several objects from one instant on. Returns since
/// when, ns.
pub(super) fn open_edges(windowed: &mut impl Windowed, length_ns: Option<u64>) -> Result<u64> {
    let mut pause_ns = match length_ns {
        Some(_) if windowed.settles() => SETTLE_NS,
        _ => 0,
    };
    let mut all = windowed.edges()?;
    let is_one = all.len() == 1;
    if !is_one {
        pause_ns = pause_ns.max(LEAD_NS);
    }
    loop {
        let at_ns = monotonic_ns() + pause_ns;
        for told in &mut all {
            told.open(at_ns, length_ns);
        }
        if is_one || monotonic_ns() < at_ns {
            return Ok(at_ns);
        }
        // Some were told too late. Those that were not have begun, and keep what they counted: the CPU was taken from us for
        // longer than the pause, which real-time priority makes rare.
        pause_ns *= 2;
    }
}

/// Lets time count no longer, if several objects are to close at one instant: it is past on return. What one alone counts ends
/// where it is shut. Returns when it ended, at the latest, ns.
pub(super) fn shut(windowed: &mut impl Windowed) -> Result<u64> {
    let mut all = windowed.edges()?;
    if let [first, _, ..] = &all[..] {
        let planned_ns = *first.end_ns;
        let mut end_ns = monotonic_ns() + LEAD_NS;
        if planned_ns != 0 {
            end_ns = end_ns.min(planned_ns);
        }
        for told in &mut all {
            store(told.end_ns, end_ns);
        }
        drop(all);
        let left_ns = end_ns.saturating_sub(monotonic_ns());
        thread::sleep(Duration::from_nanos(left_ns));
        windowed.shut()?;
        return Ok(end_ns);
    }
    windowed.shut()
}

/// Now, or when the window closed by the clock before, ns. `end_ns`: 0 until its end is known.
pub fn ended_at(end_ns: u64) -> u64 {
    let now = monotonic_ns();
    if end_ns == 0 { now } else { end_ns.min(now) }
}

/// Lets time count no longer than until now, which it returns, ns.
pub fn shut_edges(end_ns: &mut u64) -> u64 {
    let now = monotonic_ns();
    if *end_ns == 0 || *end_ns > now {
        store(end_ns, now);
    }
    now
}

/// Adds to a counter that BPF programs on other CPUs may add to meanwhile.
pub fn add_shared(counter: &mut u64, n: u64) {
    // SAFETY: valid, aligned and ours alone, as far as this process goes.
    unsafe { AtomicU64::from_ptr(ptr::from_mut(counter)) }.fetch_add(n, Ordering::Relaxed);
}

/// Writes what BPF programs on other CPUs read meanwhile, after all that was written before.
pub fn store(place: &mut u64, value: u64) {
    // SAFETY: valid, aligned and ours alone, as far as this process goes.
    unsafe { AtomicU64::from_ptr(ptr::from_mut(place)) }.store(value, Ordering::Release);
}

/// The same for the number of a table's half.
pub fn store_half(place: &mut u32, half: u32) {
    // SAFETY: as above.
    unsafe { AtomicU32::from_ptr(ptr::from_mut(place)) }.store(half, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_so_long_after_it_begins_or_when_it_is_told() {
        let (mut start_ns, mut end_ns) = (7, 8);
        let mut told = Told {
            start_ns: &mut start_ns,
            end_ns: &mut end_ns,
        };
        told.open(1_000, Some(50));
        assert_eq!((*told.start_ns, *told.end_ns), (1_000, 1_050));
        told.open(2_000, None);
        assert_eq!((*told.start_ns, *told.end_ns), (2_000, 0));
        assert!(shut_edges(&mut end_ns) == end_ns && end_ns > 0);
    }
}
