//! Strings.

use crate::layout::Layout;
use crate::memory::{Memory, Unread, fill, half_in, word_in};

/// Bytes that are read at first: most names are shorter.
const FIRST: usize = 256;
/// Places in a string's head.
const LENGTH: u16 = 16;
const STATE: u16 = 32;
/// Bits of the state: bytes of a character in three of them, characters right behind the head, all of them ASCII.
const KIND: u32 = 2;
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// The string at an address, of at most so many characters; more are cut. A half of a pair that stands alone becomes U+FFFD.
pub(crate) fn read(
    memory: &impl Memory,
    layout: &Layout,
    address: u64,
    most: usize,
) -> Result<String, Unread> {
    let mut first = [0; FIRST];
    let read = memory.read(address, &mut first).map_err(Unread::Memory)?;
    let first = &first[..read.min(FIRST)];
    if first.len() < usize::from(layout.ascii) {
        return Err(Unread::Malformed("string"));
    }
    let state = half_in(first, STATE);
    let (width, data) = match (state & ASCII != 0, state >> KIND & 7) {
        (true, 1) => (1, layout.ascii),
        (false, width @ (1 | 2 | 4)) => (width as usize, layout.wide),
        _ => return Err(Unread::Malformed("string")),
    };
    let length = i64::try_from(word_in(first, LENGTH)).map_err(|_| Unread::Malformed("string"))?;
    if state & COMPACT == 0 {
        return Err(Unread::Malformed("string"));
    }
    let length = usize::try_from(length).map_or(most, |length| length.min(most));
    let data = usize::from(data);
    let mut bytes = vec![0; length * width];
    match first.get(data..data + bytes.len()) {
        Some(found) => bytes.copy_from_slice(found),
        None => fill(memory, address.wrapping_add(data as u64), &mut bytes)?,
    }
    let character = |bytes: &[u8]| {
        let value = bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    Ok(bytes.chunks_exact(width).map(character).collect())
}
