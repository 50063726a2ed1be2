//! An ELF file that anyone may have made, read in pieces: each is bounded, and so are all together.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;

use object::read::{ReadCache, ReadRef};

/// How much may be read of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of a piece.
    pub(crate) piece: u64,
    /// Bytes of a name.
    pub(crate) name: u64,
    /// Bytes of everything: what was read stays in memory until its last byte is, and headers may name a thousand pieces.
    pub(crate) all: u64,
}

/// A file, what was read of it, and how much may still be.
pub(crate) struct Pieces<'f> {
    cache: ReadCache<&'f File>,
    limits: Limits,
    left: Cell<u64>,
    overdrawn: Cell<bool>,
}

impl<'f> Pieces<'f> {
    pub(crate) fn new(file: &'f File, limits: Limits) -> Self {
        Self {
            cache: ReadCache::new(file),
            limits,
            left: Cell::new(limits.all),
            overdrawn: Cell::new(false),
        }
    }

    /// Whether more was asked for than may be read of everything.
    pub(crate) fn overdrawn(&self) -> bool {
        self.overdrawn.get()
    }

    /// A piece that was read before counts again: looking through it takes as long as the first time.
    fn spend(&self, bytes: u64) -> Result<(), ()> {
        let left = self.left.get().checked_sub(bytes);
        self.overdrawn.set(self.overdrawn.get() || left.is_none());
        self.left.set(left.ok_or(())?);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for &'a Pieces<'_> {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(&self.cache)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > self.limits.piece {
            return Err(());
        }
        self.spend(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let end = range.end.min(range.start.saturating_add(self.limits.name));
        let found = self
            .cache
            .read_bytes_at_until(range.start..end, delimiter)?;
        self.spend(found.len() as u64 + 1)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_bounded_also_in_all() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let limits = Limits {
            piece: 1000,
            name: 10,
            all: 2500,
        };
        let pieces = Pieces::new(&file, limits);
        assert!((&pieces).read_bytes_at(0, 1001).is_err());
        assert!((&pieces).read_bytes_at_until(0..100, 1).is_err());
        assert_eq!((&pieces).read_bytes_at(0, 1000).unwrap(), [0; 1000]);
        assert_eq!((&pieces).read_bytes_at(0, 1000).unwrap(), [0; 1000]);
        assert_eq!((&pieces).read_bytes_at_until(0..100, 0).unwrap(), b"");
        assert!(!pieces.overdrawn());
        assert!((&pieces).read_bytes_at(4096, 500).is_err(), "499 are left");
        assert!(pieces.overdrawn());
        assert!((&pieces).read_bytes_at(4096, 499).is_ok());
    }
}
