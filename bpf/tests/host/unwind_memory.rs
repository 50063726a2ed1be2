//! The memory of a program that is walked: pages that are there, and words among them that are not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

pub(crate) const PAGE: u64 = 4096;

/// Pages, each of which is there once something is written to it.
#[derive(Default)]
pub(crate) struct Memory {
    pages: BTreeMap<u64, Vec<u8>>,
    /// Numbers of half words that cannot be read.
    holes: BTreeSet<u64>,
    /// Numbers of half words that somebody wrote or keeps.
    taken: BTreeSet<u64>,
}

impl Memory {
    /// False: some of it is not there.
    pub(crate) fn read(&self, from: u64, to: &mut [u8]) -> bool {
        let Some(last) = from.checked_add(to.len() as u64 - 1) else {
            return false;
        };
        if self.holes.range(from / 4..=last / 4).next().is_some() {
            return false;
        }
        for (at, byte) in (from..=last).zip(to) {
            let Some(page) = self.pages.get(&(at / PAGE)) else {
                return false;
            };
            *byte = page[(at % PAGE) as usize];
        }
        true
    }

    pub(crate) fn word(&self, from: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(from, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    fn words(at: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
        at / 4..=(at.saturating_add(bytes - 1)) / 4
    }

    /// True: nobody needs any of it.
    pub(crate) fn is_free(&self, at: u64, bytes: u64) -> bool {
        at.checked_add(bytes).is_some() && self.taken.range(Self::words(at, bytes)).next().is_none()
    }

    pub(crate) fn take(&mut self, at: u64, bytes: u64) {
        self.taken.extend(Self::words(at, bytes));
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.take(at, bytes.len() as u64);
        for (at, byte) in (at..).zip(bytes) {
            let page = self
                .pages
                .entry(at / PAGE)
                .or_insert_with(|| vec![0; PAGE as usize]);
            page[(at % PAGE) as usize] = *byte;
        }
    }

    pub(crate) fn write_word(&mut self, at: u64, word: u64) {
        self.write(at, &word.to_le_bytes());
    }

    /// The page is there, whatever is on it.
    pub(crate) fn map(&mut self, at: u64) {
        self.pages
            .entry(at / PAGE)
            .or_insert_with(|| vec![0; PAGE as usize]);
    }

    /// The word of this address is not there any more.
    pub(crate) fn lose(&mut self, at: u64) {
        self.holes.insert(at / 4);
    }
}

/// The function that the host calls.
pub(crate) type Reader = unsafe extern "C" fn(*const c_void, u64, u64, *mut u8) -> bool;

/// # Safety
///
/// `of` is a [`Memory`], `to` has room for `bytes` bytes.
pub(crate) unsafe extern "C" fn read(
    of: *const c_void,
    from: u64,
    bytes: u64,
    to: *mut u8,
) -> bool {
    // SAFETY: by our caller's word.
    let (memory, to) = unsafe {
        let to = std::slice::from_raw_parts_mut(to, usize::try_from(bytes).expect("a length"));
        (&*of.cast::<Memory>(), to)
    };
    memory.read(from, to)
}
