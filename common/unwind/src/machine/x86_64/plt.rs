//! Procedure linkage tables of x86-64.

use crate::rule::{Cfa, Rule};

/// Bytes in the header and in each entry.
const ENTRY: usize = 16;
/// Bytes in a static program's stub.
const STUB: usize = 8;
/// The place where the header, reached with one word pushed, has pushed another.
const HEADER_PUSHED: u64 = 6;
/// The place where an entry has pushed its index.
const ENTRY_PUSHED: i32 = 11;

/// The rules of a PLT by offset; none: not all of it is code that is known here.
pub(in crate::machine) fn rules(bytes: &[u8]) -> Vec<(u64, Rule)> {
    let rule = |cfa, cfa_offset| Rule {
        cfa,
        cfa_offset,
        ..Rule::default()
    };
    if is_stubs(bytes) {
        return vec![(0, rule(Cfa::Sp, 8))];
    }
    if !is_lazy(bytes) {
        return Vec::new();
    }
    // GNU linkers say the same of it. The pages of the table start at multiples of 16 as the entries do.
    vec![
        (0, rule(Cfa::Sp, 16)),
        (HEADER_PUSHED, rule(Cfa::Sp, 24)),
        (ENTRY as u64, rule(Cfa::Plt, ENTRY_PUSHED)),
    ]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_code_is_a_plt() {
        let header = [0xff, 0x35, 1, 2, 3, 4, 0xff, 0x25, 1, 2, 3, 4, 0, 0, 0, 0];
        let entry = [0xff, 0x25, 1, 2, 3, 4, 0x68, 1, 0, 0, 0, 0xe9, 1, 2, 3, 4];
        assert!(is_lazy(&[header, entry, entry].concat()));
        assert!(!is_lazy(&[header, header].concat()));
        assert!(!is_lazy(&[entry, entry].concat()));
        assert!(!is_lazy(&[&header[..], &entry[..15]].concat()));
        assert!(!is_lazy(&[]));
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
