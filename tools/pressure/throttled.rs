//! Time that tasks spent without CPU quota.

use anyhow::Result;
use bpf::pressure::PressureSkel;
use trace::budget::Window;

use crate::harvest;

/// Tasks × ns without CPU quota.
#[derive(Default)]
pub(crate) struct Throttled {
    /// With a budget only.
    estimate: Option<Estimate>,
}

/// Sum over windows, each multiplied by what it stands for.
#[derive(Default)]
struct Estimate {
    ns: u64,
    /// Counted when the latest window closed.
    counted_ns: u64,
}

impl Throttled {
    /// `is_in_windows`: [`Self::add_window`] will be called.
    pub(crate) fn new(is_in_windows: bool) -> Self {
        Self {
            estimate: is_in_windows.then(Estimate::default),
        }
    }

    /// Total up to `now_ns`. `is_open`: a window is open that stands for itself.
    pub(crate) fn total_ns(
        &self,
        skel: &PressureSkel<'_>,
        now_ns: u64,
        is_open: bool,
    ) -> Result<u64> {
        match &self.estimate {
            None => harvest::throttled_ns(skel, now_ns),
            Some(estimate) if is_open => {
                Ok(estimate.with(harvest::throttled_ns(skel, now_ns)?, 1.0))
            }
            Some(estimate) => Ok(estimate.ns),
        }
    }

    /// Adds a window that is over.
    pub(crate) fn add_window(&mut self, skel: &PressureSkel<'_>, window: &Window) -> Result<()> {
        if let Some(estimate) = &mut self.estimate {
            let counted_ns = harvest::throttled_ns(skel, window.end_ns)?;
            estimate.ns = estimate.with(counted_ns, window.weight());
            // Excludes waits that go on at the window's end: the next window begins anew.
            estimate.counted_ns = harvest::throttled_ns(skel, 0)?;
        }
        Ok(())
    }
}

impl Estimate {
    /// The sum, and `weight` times what has been counted since the latest window.
    fn with(&self, counted_ns: u64, weight: f64) -> u64 {
        self.ns + scaled(counted_ns.saturating_sub(self.counted_ns), weight)
    }
}

/// Whole ns.
pub(crate) fn scaled(ns: u64, scale: f64) -> u64 {
    (scale * ns as f64).round() as u64
}
