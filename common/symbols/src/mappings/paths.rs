//! One copy of each path, however many mappings and processes have it.

use std::collections::HashSet;
use std::sync::Arc;

/// Unused paths are dropped when so many are known.
const SWEEP_AT: usize = 16_384;

/// All paths together: half a million of usual length. Whoever renames a file between two mappings has a path for each.
const MAX_BYTES: usize = 64 << 20;
/// What stands for the others, as the kernel writes where it has no room for a path.
const TOO_LONG: &[u8] = b"//toolong";

/// Shared path names.
#[derive(Debug, Default)]
pub(super) struct Paths {
    known: HashSet<Arc<[u8]>>,
    bytes: usize,
    sweep_at: usize,
    /// New ones since unused ones were dropped.
    fresh: usize,
    /// Paths that found no room.
    pub(super) refused: u64,
}

impl Paths {
    /// The shared copy of `path`.
    pub(super) fn share(&mut self, path: Arc<[u8]>) -> Arc<[u8]> {
        if let Some(known) = self.known.get(&path) {
            return Arc::clone(known);
        }
        self.fresh += 1;
        let is_full = self.bytes + path.len() > MAX_BYTES && self.fresh >= SWEEP_AT;
        if is_full || self.known.len() >= self.sweep_at.max(SWEEP_AT) {
            self.fresh = 0;
            self.known.retain(|p| Arc::strong_count(p) > 1);
            self.bytes = self.known.iter().map(|p| p.len()).sum();
            self.sweep_at = self.known.len() * 2;
        }
        if self.bytes + path.len() > MAX_BYTES {
            self.refused += 1;
            return TOO_LONG.into();
        }
        self.bytes += path.len();
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

    #[test]
    fn paths_of_files_that_are_renamed_for_each_mapping_are_bounded() {
        let mut paths = Paths::default();
        let long = |i: u32| [&[b'x'; 4000][..], &i.to_ne_bytes()].concat().into();
        let held: Vec<_> = (0..30_000).map(|i| paths.share(long(i))).collect();
        let bytes: usize = paths.known.iter().map(|path| path.len()).sum();
        assert!(bytes <= MAX_BYTES && bytes > MAX_BYTES / 2);
        let refused = held.iter().filter(|path| ***path == *TOO_LONG).count();
        assert_eq!(
            (held.len() - refused, refused as u64),
            (paths.known.len(), paths.refused)
        );
        drop(held);
        let refused = (30_000..60_000).filter(|i| *paths.share(long(*i)) == *TOO_LONG);
        assert!(refused.count() < SWEEP_AT, "there is room again");
    }
}
