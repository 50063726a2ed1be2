//! What a tool does at the edges of the windows that its collection is cut into.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A tool whose collection can be cut into windows.
pub trait Windowed {
    /// Its loaded programs.
    fn object(&self) -> &Object;

    /// What each run of its programs on functions of programs costs beside them: a trap, ns.
    fn trap_ns(&self) -> u64 {
        0
    }

    /// Whether [`Self::open`] can do its work at once, as far as this can be known.
    fn is_ready(&self) -> bool {
        true
    }

    /// Leaves out the user stacks of waits shorter than this, ns, from now on; 0: of none. Returns whether it can.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    fn leave_out(&mut self, _below_ns: u64) -> Result<bool> {
        Ok(false)
    }

    /// What has been left out so far.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    fn left_out(&self) -> Result<LeftOut> {
        Ok(LeftOut::default())
    }

    /// The programs are attached: takes stock of what is under way, then lets time count from now on, for `length_ns` or
    /// until told. After the `first` window, programs on tracepoints without a perf event (sched_exit_tp) are not. Returns
    /// when it began, ns.
    ///
    /// # Errors
    ///
    /// The tool's own; they end the run.
    fn open(&mut self, length_ns: Option<u64>, first: bool) -> Result<u64>;

    /// Lets time count no longer; without a budget, for what comes next. Returns when it ended, at the latest, ns.
    ///
    /// # Errors
    ///
    /// As above.
    fn shut(&mut self) -> Result<u64>;

    /// The programs are detached: takes what the window has brought.
    ///
    /// # Errors
    ///
    /// As above.
    fn take(&mut self, window: &Window) -> Result<()>;
}

/// Lets time count in the BPF side's window (window.bpf.h), for `length_ns` or until told. Returns since when, ns.
pub fn open_edges(start_ns: &mut u64, end_ns: &mut u64, length_ns: Option<u64>) -> u64 {
    open_edges_at(monotonic_ns(), start_ns, end_ns, length_ns)
}

/// Time between attaching and a window, ns. Attaching stops all CPUs for moments, and we have had one: whoever goes on, or has work
/// that came meanwhile, does so then, and it would stand for all the time around. Measured with fio at 40,000 requests/s: estimated
/// were 1.23 to 1.39 of them without a pause, 1.06 to 1.10 with one of 1 ms, 1.02 with 3 ms, 1.00 with 6 ms.
const SETTLE_NS: u64 = 3_000_000;

/// As [`open_edges`], but if it is for a `length_ns`, time counts a little later, when what attaching did to the machine is over.
pub fn open_edges_settled(start_ns: &mut u64, end_ns: &mut u64, length_ns: Option<u64>) -> u64 {
    let pause_ns = length_ns.map_or(0, |_| SETTLE_NS);
    open_edges_at(monotonic_ns() + pause_ns, start_ns, end_ns, length_ns)
}

fn open_edges_at(at_ns: u64, start_ns: &mut u64, end_ns: &mut u64, length_ns: Option<u64>) -> u64 {
    // In this order: the window must not seem open in between.
    store(start_ns, 0);
    store(end_ns, length_ns.map_or(0, |length| at_ns + length));
    store(start_ns, at_ns);
    at_ns
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

/// BPF programs on other CPUs read it meanwhile.
fn store(place: &mut u64, value: u64) {
    // SAFETY: valid, aligned and ours alone, as far as this process goes.
    unsafe { AtomicU64::from_ptr(ptr::from_mut(place)) }.store(value, Ordering::Release);
}
