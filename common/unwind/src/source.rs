//! Reading a file, or memory, in bounded pieces.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::read::{ReadCache, ReadCacheOps, ReadRef};

/// Largest single header table or string table that is read through [`Bounded`].
const MAX_READ: u64 = 4 << 20;

/// Bytes at offsets.
pub(crate) trait Source {
    fn len(&self) -> io::Result<u64>;
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

impl Source for [u8] {
    fn len(&self) -> io::Result<u64> {
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
pub(crate) fn read<S: Source + ?Sized>(source: &S, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    // Before any memory is taken for what a header claims.
    if offset
        .checked_add(size)
        .is_none_or(|end| source.len().is_ok_and(|len| end > len))
    {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let size = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = vec![0; size];
    source.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// A place in a source. Unlike a file's own position it is nobody else's.
pub(crate) struct Cursor<'s, S: ?Sized> {
    source: &'s S,
    position: u64,
}

impl<'s, S: Source + ?Sized> Cursor<'s, S> {
    pub(crate) fn new(source: &'s S) -> Self {
        Self {
            source,
            position: 0,
        }
    }
}

impl<S: Source + ?Sized> ReadCacheOps for Cursor<'_, S> {
    fn len(&mut self) -> Result<u64, ()> {
        self.source.len().map_err(drop)
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

/// A source that is never read in one piece. The cache aligns what it returns as `object` needs it.
pub(crate) struct Bounded<'c, 's, S: Source + ?Sized>(pub(crate) &'c ReadCache<Cursor<'s, S>>);

impl<S: Source + ?Sized> Clone for Bounded<'_, '_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Source + ?Sized> Copy for Bounded<'_, '_, S> {}

impl<'c, S: Source + ?Sized> ReadRef<'c> for Bounded<'c, '_, S> {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(self.0)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'c [u8], ()> {
        if size > MAX_READ {
            Err(())
        } else {
            self.0.read_bytes_at(offset, size)
        }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'c [u8], ()> {
        let end = range.end.min(range.start.saturating_add(4096));
        self.0.read_bytes_at_until(range.start..end, delimiter)
    }
}
