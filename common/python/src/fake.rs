//! Memory that is made up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use crate::memory::Memory;

/// Pieces of memory by their addresses.
#[derive(Default)]
pub(crate) struct Fake {
    pieces: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl Fake {
    /// Lays bytes at an address.
    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.pieces.borrow_mut().insert(address, bytes.to_vec());
    }

    /// Changes a number within what lies there.
    pub(crate) fn set(&self, address: u64, word: u64) {
        let mut pieces = self.pieces.borrow_mut();
        let (start, piece) = pieces.range_mut(..=address).next_back().expect("a piece");
        let at = (address - start) as usize;
        piece[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

impl Memory for Fake {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let pieces = self.pieces.borrow();
        let piece = pieces.range(..=address).next_back();
        let bytes = piece.and_then(|(start, piece)| piece.get((address - start) as usize..));
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or(io::ErrorKind::NotFound)?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }
}
