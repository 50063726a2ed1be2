//! Some and full of the machine from our own events, as PSI would say.

use anyhow::Result;
use bpf::pressure::PressureSkel;
use trace::budget::Window;
use trace::window::monotonic_ns;

use crate::harvest::{self, StallTimes};

/// The kernel folds its CPUs into one whenever somebody reads a pressure file, and every 2 s: who wants the same result
/// has to fold at the same times. So it is made to, this often; not more, because it counts whole ticks.
const FOLD_NS: u64 = 1_000_000_000;

/// The CPUs' times, folded now and then.
#[derive(Default)]
pub(crate) struct Emulation {
    folded_at_ns: u64,
    stalls: Vec<StallTimes>,
    /// Since the interval began: some and full, by `ON_…`.
    folded_ns: [[u64; 2]; 3],
    /// Of a collection in windows.
    windows: Option<WindowTimes>,
}

/// What windows showed, added up by what they stand for.
#[derive(Default)]
struct WindowTimes {
    estimated: Vec<StallTimes>,
    /// As counted when the latest window was over.
    counted: Vec<StallTimes>,
}

impl Emulation {
    /// `is_in_windows`: [`Self::add_window`] will be called.
    pub(crate) fn new(is_in_windows: bool) -> Self {
        Self {
            windows: is_in_windows.then(WindowTimes::default),
            ..Self::default()
        }
    }

    /// Whether it is time to.
    pub(crate) fn is_due(&self) -> bool {
        monotonic_ns().saturating_sub(self.folded_at_ns) >= FOLD_NS
    }

    /// To be called when the kernel has just folded. `is_open`: a window is, that stands for itself.
    pub(crate) fn fold(&mut self, skel: &PressureSkel<'_>, is_open: bool) -> Result<()> {
        self.folded_at_ns = monotonic_ns();
        let now = match &self.windows {
            None => harvest::stall_times(skel, self.folded_at_ns)?,
            Some(windows) if is_open => {
                let counted = harvest::stall_times(skel, self.folded_at_ns)?;
                windows.with(&counted, 1.0)
            }
            Some(windows) => windows.estimated.clone(),
        };
        let folded = harvest::fold(&self.stalls, &now);
        for (sums, folded) in self.folded_ns.iter_mut().zip(folded) {
            for (sum, folded) in sums.iter_mut().zip(folded) {
                *sum += folded;
            }
        }
        self.stalls = now;
        Ok(())
    }

    /// A window is over.
    pub(crate) fn add_window(&mut self, skel: &PressureSkel<'_>, window: &Window) -> Result<()> {
        if let Some(windows) = &mut self.windows {
            let counted = harvest::stall_times(skel, window.end_ns)?;
            windows.estimated = windows.with(&counted, window.weight());
            // What goes on at the window's end is counted nowhere else: the next window begins anew.
            windows.counted = harvest::stall_times(skel, 0)?;
        }
        Ok(())
    }

    /// Ends the interval, whose windows stand for a part of it: 1/`scale`.
    pub(crate) fn take(&mut self, scale: f64) -> [[u64; 2]; 3] {
        std::mem::take(&mut self.folded_ns).map(|kinds| kinds.map(|ns| scaled(ns, scale)))
    }

    /// Tasks × ns without CPU quota, at the latest fold.
    pub(crate) fn throttled_ns(&self) -> u64 {
        self.stalls.iter().map(|cpu| cpu.throttled_ns).sum()
    }
}

/// Whole ns.
pub(crate) fn scaled(ns: u64, scale: f64) -> u64 {
    (scale * ns as f64).round() as u64
}

impl WindowTimes {
    /// The estimates, and `weight` times what has been `counted` since.
    fn with(&self, counted: &[StallTimes], weight: f64) -> Vec<StallTimes> {
        let nothing = StallTimes::default();
        counted
            .iter()
            .enumerate()
            .map(|(cpu, now)| {
                let before = self.counted.get(cpu).unwrap_or(&nothing);
                let so_far = self.estimated.get(cpu).unwrap_or(&nothing);
                so_far.plus(&now.since(before), weight)
            })
            .collect()
    }
}
