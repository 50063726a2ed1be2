//! How much of its time a collection looked.

use crate::windowed::Window;

/// Windows and the time that they stand for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    open_ns: u64,
    strata_ns: u64,
    until_ns: u64,
}

impl Looked {
    /// Adds a window that is over.
    pub(super) fn add(&mut self, window: &Window) {
        self.open_ns += window.open_ns();
        self.strata_ns += window.stratum_ns;
        self.until_ns = window.end_ns;
    }

    /// End of the last window, ns.
    pub(super) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Length of all windows, ns.
    pub(super) fn open_ns(&self) -> u64 {
        self.open_ns
    }

    /// Whether there was a window at all.
    pub(super) fn is_any(&self) -> bool {
        self.strata_ns > 0
    }

    /// Whether nothing was left out.
    pub(super) fn is_exact(&self) -> bool {
        self.strata_ns > 0 && self.open_ns >= self.strata_ns
    }

    /// What all totals are to be multiplied by, because strata end where their window puts them and not where the
    /// `elapsed_ns` of the collection do.
    pub(super) fn scale(&self, elapsed_ns: u64) -> f64 {
        if self.is_exact() || self.strata_ns == 0 {
            return 1.0;
        }
        elapsed_ns as f64 / self.strata_ns as f64
    }

    /// Share of `elapsed_ns` that was looked at, at most 1.
    pub(super) fn share(&self, elapsed_ns: u64) -> f64 {
        (self.open_ns as f64 / elapsed_ns.max(1) as f64).min(1.0)
    }
}
