//! Reading a file, or memory, in pieces: each is bounded, and so are all together.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::read::{ReadCache, ReadCacheOps, ReadRef};

/// Bytes at offsets.
pub trait Source {
    /// Their number.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

impl Source for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let bytes = from.and_then(|bytes| bytes.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Reads `size` bytes, unless the source has less.
pub fn read<S: Source + ?Sized>(source: &S, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    // Before any memory is taken for what a header claims.
    if offset
        .checked_add(size)
        .is_none_or(|end| source.size().is_ok_and(|len| end > len))
    {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let size = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = vec![0; size];
    source.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// A place in a source. Unlike a file's own position it is nobody else's.
struct Cursor<'s, S: ?Sized> {
    source: &'s S,
    position: u64,
}

impl<S: Source + ?Sized> ReadCacheOps for Cursor<'_, S> {
    fn len(&mut self) -> Result<u64, ()> {
        self.source.size().map_err(drop)
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.position = position;
        Ok(position)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
        let left = ReadCacheOps::len(self)?.saturating_sub(self.position);
        let size = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        ReadCacheOps::read_exact(self, &mut buffer[..size])?;
        Ok(size)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        let source = self.source;
        source.read_exact_at(buffer, self.position).map_err(drop)?;
        self.position += buffer.len() as u64;
        Ok(())
    }
}

/// Limits on reading a source.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a piece.
    pub piece: u64,
    /// Bytes of a name.
    pub name: u64,
    /// Bytes of everything: what was read stays in memory until its last byte is, and headers may name a thousand pieces.
    pub all: u64,
}

/// A source, what was read of it, and how much may still be. The cache aligns what it returns as `object` needs it.
pub struct Pieces<'s, S: Source + ?Sized> {
    cache: ReadCache<Cursor<'s, S>>,
    limits: Limits,
    left: Cell<u64>,
    overdrawn: Cell<bool>,
}

impl<'s, S: Source + ?Sized> Pieces<'s, S> {
    /// Nothing was read yet.
    pub fn new(source: &'s S, limits: Limits) -> Self {
        Self {
            cache: ReadCache::new(Cursor {
                source,
                position: 0,
            }),
            limits,
            left: Cell::new(limits.all),
            overdrawn: Cell::new(false),
        }
    }

    /// True if more was asked for than may be read of everything.
    pub fn overdrawn(&self) -> bool {
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

impl<'a, S: Source + ?Sized> ReadRef<'a> for &'a Pieces<'_, S> {
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
