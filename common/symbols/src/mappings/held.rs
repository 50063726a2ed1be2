//! How many mappings all tables hold together: processes choose how many they make, the tool how much memory it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// About 160 bytes each: 340 MB. 20,000 processes with 100 of their own fit, and any number that share those of a parent.
const MAX_HELD: usize = 1 << 21;

/// The count, which every table keeps up to date.
#[derive(Clone, Debug)]
pub(super) struct Held {
    mappings: Arc<AtomicUsize>,
    most: usize,
}

impl Default for Held {
    fn default() -> Self {
        Self::new(MAX_HELD)
    }
}

impl Held {
    /// At most so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            mappings: Arc::default(),
            most,
        }
    }

    /// Mappings in all tables; one that several processes share counts once.
    pub(super) fn count(&self) -> usize {
        self.mappings.load(Ordering::Relaxed)
    }

    /// How many more there may be.
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.count())
    }

    /// What is made free at once, so that making room is rare.
    pub(super) fn reserve(&self) -> usize {
        self.most / 8
    }

    /// A table has become longer or shorter.
    pub(super) fn changed(&self, before: usize, after: usize) {
        if after > before {
            self.mappings.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.mappings.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
