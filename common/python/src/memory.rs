//! Memory of another process, which may hold anything.

use std::fmt;
use std::io;

/// Bytes that are read at once.
const PIECE: usize = 4096;

/// Memory of another process.
pub trait Memory {
    /// Reads into `buffer`, of at most 4096 bytes, what lies at `address`; returns how many bytes there were.
    ///
    /// # Errors
    ///
    /// When there is nothing, or the process is gone.
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Reasons for which something was not read.
#[derive(Debug)]
pub enum Unread {
    /// The memory cannot be read there.
    Memory(io::Error),
    /// The named thing is none.
    Malformed(&'static str),
    /// It changed while it was read.
    Replaced,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::Malformed(what) => write!(f, "malformed {what}"),
            Self::Replaced => f.write_str("replaced while it was read"),
        }
    }
}

impl std::error::Error for Unread {}

/// Fills the buffer from there on.
pub(crate) fn fill(memory: &impl Memory, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
    let mut at = address;
    for piece in buffer.chunks_mut(PIECE) {
        let read = memory.read(at, piece).map_err(Unread::Memory)?;
        if read < piece.len() {
            return Err(Unread::Memory(io::ErrorKind::UnexpectedEof.into()));
        }
        at = at.wrapping_add(piece.len() as u64);
    }
    Ok(())
}

/// A number of eight bytes.
pub(crate) fn word(memory: &impl Memory, address: u64) -> Result<u64, Unread> {
    let mut bytes = [0; 8];
    fill(memory, address, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The number of eight bytes at an offset; 0 where the bytes end before.
pub(crate) fn word_in(bytes: &[u8], offset: u16) -> u64 {
    let at = usize::from(offset);
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    u64::from_le_bytes(word.unwrap_or_default())
}

/// The number of four bytes at an offset; 0 where the bytes end before.
pub(crate) fn half_in(bytes: &[u8], offset: u16) -> u32 {
    let at = usize::from(offset);
    let half = bytes.get(at..at + 4).and_then(|half| half.try_into().ok());
    u32::from_le_bytes(half.unwrap_or_default())
}
