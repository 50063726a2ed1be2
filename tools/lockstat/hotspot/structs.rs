//! Places of fields in the structures of a Java virtual machine, as it describes them itself for debuggers (`vmStructs.hpp` of HotSpot).
//!
//! All of it is another process's memory, and may be anything: what makes no sense is missing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Fills the buffer with what lies at an address, or says that it is not there.
pub(crate) type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// Bytes that are read at once.
const PAGE: u64 = 4096;
/// Pages that are kept at once, and that are read in all: a large machine's, and as many as a hostile one may have.
const MOST_KEPT: usize = 4096;
const MOST_READ: usize = 1 << 15;
/// An entry: names of a type, a field and the field's type, whether it is static, its offset, its address.
const ENTRY: usize = 48;
/// HotSpot has a thousand.
const MOST_ENTRIES: u64 = 4096;
const LONGEST_NAME: usize = 64;

/// A field of the running machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Bytes from the beginning of its structure; a static one's address.
    pub(super) place: u64,
    /// It holds a number of eight bytes, and no address.
    pub(super) is_number: bool,
    /// It holds the address of an object's address.
    pub(super) is_handle: bool,
}

/// All that were asked for and found, by type and name.
#[derive(Debug, Default)]
pub(super) struct Fields(HashMap<(&'static str, &'static str), Field>);

impl Fields {
    /// Those of `wanted` in the table that begins at an address.
    pub(super) fn read(
        table: u64,
        wanted: &[(&'static str, &'static str)],
        read: Read<'_>,
    ) -> Self {
        let pages = Pages::new(read);
        let mut found = HashMap::new();
        for number in 0..MOST_ENTRIES {
            let mut entry = [0; ENTRY];
            let at = table.wrapping_add(number * ENTRY as u64);
            if !pages.fill(at, &mut entry) {
                break;
            }
            let word = |index: usize| word_of(&entry[8 * index..]);
            let Some(kind) = pages.text(word(0)) else {
                break;
            };
            let Some(name) = pages.text(word(1)) else {
                continue;
            };
            let is_it = |one: &&(&str, &str)| one.0 == kind && one.1 == name;
            let Some(key) = wanted.iter().find(is_it) else {
                continue;
            };
            let is_static = entry[24] != 0;
            let holds = pages.text(word(2)).unwrap_or_default();
            let field = Field {
                place: word(if is_static { 5 } else { 4 }),
                is_number: holds == "int64_t",
                is_handle: holds == "OopHandle",
            };
            found.insert(*key, field);
        }
        Self(found)
    }

    /// The first of these types that has the field: it moved between releases.
    pub(super) fn of(&self, types: &[&'static str], name: &'static str) -> Option<&Field> {
        types.iter().find_map(|kind| self.0.get(&(*kind, name)))
    }
}

/// Memory by pages, each of which is read once.
pub(crate) struct Pages<'a> {
    read: Read<'a>,
    known: RefCell<HashMap<u64, Option<Box<[u8]>>>>,
    /// Pages that may be read still.
    left: Cell<usize>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(read: Read<'a>) -> Self {
        Self {
            read,
            known: RefCell::default(),
            left: Cell::new(MOST_READ),
        }
    }

    /// Fills the buffer with what lies at an address; `false`: it is not there.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8]) -> bool {
        let mut known = self.known.borrow_mut();
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        let mut at = address;
        for byte in buffer {
            let page = known.entry(at & !(PAGE - 1)).or_insert_with_key(|begin| {
                let left = self.left.get().checked_sub(1)?;
                self.left.set(left);
                let mut page = vec![0; PAGE as usize].into_boxed_slice();
                (self.read)(*begin, &mut page).then_some(page)
            });
            let Some(page) = page else {
                return false;
            };
            *byte = page[(at % PAGE) as usize];
            at = at.wrapping_add(1);
        }
        true
    }

    /// Text up to its zero; `None`: there is none, or it is too long.
    fn text(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        for at in 0..LONGEST_NAME as u64 {
            let mut byte = [0];
            if address == 0 || !self.fill(address.wrapping_add(at), &mut byte) {
                return None;
            }
            if byte[0] == 0 {
                return String::from_utf8(text).ok();
            }
            text.push(byte[0]);
        }
        Some(String::new())
    }
}

/// A number of eight bytes from the first on.
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
