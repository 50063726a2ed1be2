//! Pointers that the dynamic linker sets in a position-independent program; their values are beside the program only.
//!
//! They are known of 64-bit x86 and ARM, which have them in `DT_RELA`. Each place that `DT_RELR` lists has its value in the place itself.

use object::elf::{DT_RELA, DT_RELASZ};

use super::header::Image;
use crate::headers::Dynamic;

/// Bytes of one relocation: place, type and symbol, value.
const SIZE: usize = 24;
/// Relocations looked at, 48 MiB of them: those of 600,000 functions, by what small programs have of each.
const MAX_RELOCATIONS: u64 = 2 << 20;
/// Entries of the dynamic section looked at; real ones have 40.
const MAX_DYNAMIC: u64 = 256;
/// Relocations read at once.
const CHUNK: usize = 4096;

/// Their place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relocations {
    address: u64,
    count: u64,
    relative: u32,
}

impl Relocations {
    pub(super) fn read(dynamic: Dynamic, file: &impl Image) -> Option<Self> {
        let Dynamic { address, relative } = dynamic;
        let (mut table, mut size) = (None, 0);
        for n in 0..MAX_DYNAMIC {
            let mut entry = [0; 16];
            file.fill(address.checked_add(n * 16)?, &mut entry)?;
            let (tag, value) = (number(&entry[..8]), number(&entry[8..]));
            match i64::from_ne_bytes(tag.to_ne_bytes()) {
                0 => break,
                tag if tag == DT_RELA.0 => table = Some(value),
                tag if tag == DT_RELASZ.0 => size = value,
                _ => {}
            }
        }
        Some(Self {
            address: table?,
            count: (size / SIZE as u64).min(MAX_RELOCATIONS),
            relative,
        })
    }

    /// Sets the pointers in `bytes`, which were read from `address`.
    pub(super) fn apply(&self, file: &impl Image, address: u64, bytes: &mut [u8]) {
        self.each(file, |place, value| {
            let at = place
                .checked_sub(address)
                .and_then(|at| usize::try_from(at).ok());
            let slot = at.and_then(|at| bytes.get_mut(at..at.checked_add(8)?));
            if let Some(slot) = slot {
                slot.copy_from_slice(&value.to_le_bytes());
            }
            true
        });
    }

    /// Places that will point to `target`, at most `most`.
    pub(super) fn pointers_to(&self, file: &impl Image, target: u64, most: usize) -> Vec<u64> {
        let mut found = Vec::new();
        self.each(file, |place, value| {
            if value == target {
                found.push(place);
            }
            found.len() < most
        });
        found
    }

    /// Shows `look` the place and the value of each pointer until it has seen enough.
    fn each(&self, file: &impl Image, mut look: impl FnMut(u64, u64) -> bool) {
        let mut chunk = vec![0; CHUNK * SIZE];
        let mut address = self.address;
        let mut left = self.count;
        while left > 0 && file.may_search(chunk.len()) {
            let wanted = usize::try_from(left).map_or(CHUNK, |n| n.min(CHUNK));
            let read = file.read(address, &mut chunk[..wanted * SIZE]);
            for entry in chunk[..read].chunks_exact(SIZE) {
                // The symbol is in the upper half, none for a plain pointer.
                let plain = number(&entry[8..16]) == u64::from(self.relative);
                if plain && !look(number(&entry[..8]), number(&entry[16..])) {
                    return;
                }
            }
            if read < wanted * SIZE {
                return;
            }
            let Some(next) = address.checked_add(read as u64) else {
                return;
            };
            address = next;
            left -= wanted as u64;
        }
    }
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}
