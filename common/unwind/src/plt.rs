//! Procedure linkage tables that nobody describes. LLVM's linker, which links every Rust program, writes the same
//! code as GNU linkers but no call frame information for it; GNU linkers write none for the stubs through which static programs
//! call what is chosen when they start (`memcpy`). The rules are only given to code that was recognized.

use crate::counts::Counts;
use crate::entries::{Context, Entry, Section};
use crate::rows::Rows;
use crate::rule::{Cfa, Rule};
use crate::text::Text;
use elf::Error;

/// Bytes in the header and in each entry.
const ENTRY: usize = 16;
/// Bytes in a static program's stub.
const STUB: usize = 8;
/// Where the header, reached with one word pushed, has pushed another.
const HEADER_PUSHED: u64 = 6;
/// Where an entry has pushed its index.
const ENTRY_PUSHED: i32 = 11;

/// A `.plt` section.
pub(crate) struct Plt<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: &'a [u8],
}

/// All of it is code that is known here.
pub(crate) fn is_plt(bytes: &[u8]) -> bool {
    is_lazy(bytes) || is_stubs(bytes)
}

/// All of it is any number of `jmp`, with `endbr64` before each or without: nothing is pushed there.
fn is_stubs(bytes: &[u8]) -> bool {
    let (stubs, rest) = bytes.as_chunks::<STUB>();
    let plain = |stub: &[u8; STUB]| matches!(stub, [0xff, 0x25, _, _, _, _, 0x66, 0x90]);
    if rest.is_empty() && !stubs.is_empty() && stubs.iter().all(plain) {
        return true;
    }
    let (stubs, rest) = bytes.as_chunks::<ENTRY>();
    let marked = |stub: &[u8; ENTRY]| matches!(stub, [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, ..]);
    rest.is_empty() && !stubs.is_empty() && stubs.iter().all(marked)
}

/// All of it is `push; jmp` and then any number of `jmp; push; jmp`.
fn is_lazy(bytes: &[u8]) -> bool {
    let (entries, rest) = bytes.as_chunks::<ENTRY>();
    let Some((header, entries)) = entries.split_first() else {
        return false;
    };
    let is_header = matches!(header, [0xff, 0x35, _, _, _, _, 0xff, 0x25, ..]);
    let mut entries = entries.iter();
    rest.is_empty()
        && is_header
        && entries.all(|e| matches!(e, [0xff, 0x25, _, _, _, _, 0x68, _, _, _, _, 0xe9, ..]))
}

impl Section for Plt<'_> {
    fn collect(
        &mut self,
        section: usize,
        text: &Text,
        entries: &mut Vec<Entry>,
        _: &mut Counts,
    ) -> Result<(), Error> {
        let length = self.bytes.len() as u64;
        let range = text.clip(self.address, length);
        if let Some(range) = range.filter(|range| range.end - range.start == length) {
            entries.push(Entry::new(range, section, 0));
        }
        Ok(())
    }

    fn rows(
        &mut self,
        entry: &Entry,
        _: &mut Context,
        rows: &mut Rows,
        _: &mut Counts,
    ) -> Result<(), Error> {
        let rule = |cfa, cfa_offset| Rule {
            cfa,
            cfa_offset,
            ..Rule::default()
        };
        if is_stubs(self.bytes) {
            return rows.push(entry.start, rule(Cfa::Sp, 8));
        }
        // What GNU linkers say of it. The pages of the table start at multiples of 16 as the entries do.
        rows.push(entry.start, rule(Cfa::Sp, 16))?;
        rows.push(entry.start + HEADER_PUSHED, rule(Cfa::Sp, 24))?;
        rows.push(entry.start + ENTRY as u64, rule(Cfa::Plt, ENTRY_PUSHED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_code_is_a_plt() {
        let header = [0xff, 0x35, 1, 2, 3, 4, 0xff, 0x25, 1, 2, 3, 4, 0, 0, 0, 0];
        let entry = [0xff, 0x25, 1, 2, 3, 4, 0x68, 1, 0, 0, 0, 0xe9, 1, 2, 3, 4];
        assert!(is_plt(&[header, entry, entry].concat()));
        assert!(!is_plt(&[header, header].concat()));
        assert!(!is_plt(&[entry, entry].concat()));
        assert!(!is_plt(&[&header[..], &entry[..15]].concat()));
        assert!(!is_plt(&[]));
    }

    #[test]
    fn stubs_are_jumps_alone() {
        let stub = [0xff, 0x25, 1, 2, 3, 4, 0x66, 0x90];
        let marked = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 1, 2, 3, 4, 0x66, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        assert!(is_stubs(&[stub, stub, stub].concat()));
        assert!(is_stubs(&[marked, marked].concat()));
        assert!(!is_stubs(&[&stub[..], &marked].concat()));
        assert!(!is_stubs(&stub[..7]));
        assert!(!is_stubs(&[]));
    }
}
