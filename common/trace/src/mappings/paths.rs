//! One copy of each path, however many mappings and processes have it.

use std::collections::HashSet;
use std::sync::Arc;

/// Unused paths are dropped when so many are known.
const SWEEP_AT: usize = 16_384;

/// Shared path names.
#[derive(Debug, Default)]
pub(super) struct Paths {
    known: HashSet<Arc<[u8]>>,
    sweep_at: usize,
}

impl Paths {
    /// The shared copy of `path`.
    pub(super) fn share(&mut self, path: Arc<[u8]>) -> Arc<[u8]> {
        if let Some(known) = self.known.get(&path) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at.max(SWEEP_AT) {
            self.known.retain(|p| Arc::strong_count(p) > 1);
            self.sweep_at = self.known.len() * 2;
        }
        self.known.insert(Arc::clone(&path));
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_each_and_only_while_used() {
        let mut paths = Paths::default();
        let first = paths.share((*b"/lib/a").into());
        assert!(Arc::ptr_eq(&first, &paths.share((*b"/lib/a").into())));
        for i in 0..100_000u32 {
            paths.share(i.to_ne_bytes().as_slice().into());
        }
        assert!(paths.known.len() <= SWEEP_AT);
        assert!(Arc::ptr_eq(&first, &paths.share((*b"/lib/a").into())));
    }
}
