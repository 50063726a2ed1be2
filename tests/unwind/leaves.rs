//! Functions without call frame information that leave their caller's frame alone: what is said of them is what a library says that
//! has call frame information for them.

use object::LittleEndian as LE;
use object::elf::{FileHeader64, PT_GNU_EH_FRAME, PT_NULL, SHT_NOBITS};
use object::read::elf::{FileHeader, ProgramHeader};
use unwind::{Cfa, Image, Table};

/// Symbols that are looked at in one file.
const WINDOW: u64 = 64;
const SYMBOL: u64 = 24;

fn table(bytes: &[u8]) -> Table {
    Image::from_memory(bytes).unwrap().table().unwrap().0
}

/// The same file without call frame information, and where the header of its dynamic symbols has their offset and size.
fn without_cfi(mut bytes: Vec<u8>) -> (Vec<u8>, usize) {
    let header = FileHeader64::<LE>::parse(&*bytes).unwrap();
    let (programs, sections) = (header.e_phoff(LE) as usize, header.e_shoff(LE) as usize);
    let segments = header.program_headers(LE, &*bytes).unwrap();
    let frames = segments
        .iter()
        .position(|segment| segment.p_type(LE) == PT_GNU_EH_FRAME);
    let named = header.sections(LE, &*bytes).unwrap();
    let place = |name: &[u8]| {
        let is_it = |section: &_| {
            named
                .section_name(LE, section)
                .is_ok_and(|found| found == name)
        };
        sections + 64 * named.iter().position(is_it).unwrap()
    };
    let (hidden, plt, symbols) = (place(b".eh_frame"), place(b".plt"), place(b".dynsym"));
    let frames = programs + 56 * frames.unwrap();
    bytes[frames..frames + 4].copy_from_slice(&PT_NULL.0.to_le_bytes());
    for section in [hidden, plt] {
        bytes[section + 4..section + 8].copy_from_slice(&SHT_NOBITS.0.to_le_bytes());
    }
    (bytes, symbols + 24)
}

#[test]
fn leaves_of_libraries_for_arm64_are_what_their_tables_say() {
    let mut functions = 0;
    for name in ["libc.so.6", "libm.so.6", "libstdc++.so.6"] {
        let bytes = std::fs::read(format!("/usr/aarch64-linux-gnu/lib/{name}")).unwrap();
        let whole = table(&bytes);
        let (mut bytes, field) = without_cfi(bytes);
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let (begin, size) = (word(field), word(field + 8));
        for at in (0..size).step_by((WINDOW * SYMBOL) as usize) {
            bytes[field..field + 8].copy_from_slice(&(begin + at).to_le_bytes());
            let length = (WINDOW * SYMBOL).min(size - at);
            bytes[field + 8..field + 16].copy_from_slice(&length.to_le_bytes());
            let leaves = table(&bytes);
            let end = leaves.text_start + ((leaves.pages.len() as u64) << unwind::PAGE_BITS);
            for address in (leaves.text_start..end).step_by(4) {
                let (leaf, said) = (leaves.lookup(address), whole.lookup(address));
                // Padding between two functions has the first one's rule.
                if leaf.cfa == Cfa::Sp && said.cfa != Cfa::Uncovered {
                    assert_eq!(leaf, said, "{name} {address:#x}");
                    functions += 1;
                }
            }
        }
    }
    assert!(functions > 10_000, "{functions} instructions");
}
