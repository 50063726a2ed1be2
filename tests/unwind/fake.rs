//! ELF files and call frame information made by hand.

use unwind::{Cfa, Rule};

/// Where the code of a made-up file is.
pub(crate) const TEXT: u64 = 0x10_0000;
/// Its bytes.
pub(crate) const TEXT_SIZE: u64 = 0x4000_0000;

/// A 64-bit ELF file with one executable segment and these sections (name, flags, bytes).
pub(crate) fn elf(sections: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let mut names = vec![0];
    let mut headers = vec![[0u64; 8]];
    let mut data = Vec::new();
    let start = 64 + 56;
    let offset = |data: &[u8]| start + data.len() as u64;
    for (name, flags, bytes) in sections {
        let name_at = names.len() as u64;
        names.extend(name.bytes().chain([0]));
        // sh_name and sh_type (SHT_PROGBITS) share a word, as sh_link and sh_info do.
        let size = bytes.len() as u64;
        headers.push([name_at | 1 << 32, *flags, 0, offset(&data), size, 0, 8, 0]);
        data.extend_from_slice(bytes);
        data.resize(data.len().next_multiple_of(8), 0);
    }
    let name_at = names.len() as u64;
    names.extend(b".shstrtab\0");
    headers.push([
        name_at | 3 << 32,
        0,
        0,
        offset(&data),
        names.len() as u64,
        0,
        1,
        0,
    ]);
    data.extend_from_slice(&names);
    data.resize(data.len().next_multiple_of(8), 0);

    let mut file = Vec::new();
    let word = |file: &mut Vec<u8>, value: u64| file.extend(value.to_le_bytes());
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_DYN, EM_X86_64, EV_CURRENT; e_entry, e_phoff, e_shoff.
    word(&mut file, 3 | 62 << 16 | 1 << 32);
    word(&mut file, 0);
    word(&mut file, 64);
    word(&mut file, offset(&data));
    // e_flags, e_ehsize, e_phentsize; e_phnum, e_shentsize, e_shnum, e_shstrndx.
    word(&mut file, 64 << 32 | 56 << 48);
    let count = headers.len() as u64;
    word(&mut file, 1 | 64 << 16 | count << 32 | (count - 1) << 48);
    // PT_LOAD, readable and executable.
    for value in [1 | 5 << 32, 0, TEXT, TEXT, TEXT_SIZE, TEXT_SIZE, 4096] {
        word(&mut file, value);
    }
    file.extend(data);
    for header in headers {
        for value in header {
            word(&mut file, value);
        }
    }
    file
}

/// One entry: its length, the word that says what it is, the rest, padded.
pub(crate) fn entry(id: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend_from_slice(rest);
    bytes.resize(bytes.len().next_multiple_of(8) + 4, 0);
    let mut entry = u32::try_from(bytes.len()).unwrap().to_le_bytes().to_vec();
    entry.extend(bytes);
    entry
}

/// The usual shared entry without augmentation: code factor 1, data factor -8, return address 16 at CFA - 8, CFA =
/// rsp + 8; then `more` instructions.
pub(crate) fn cie(id: u32, more: &[u8]) -> Vec<u8> {
    entry(
        id,
        &[&[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1], more].concat(),
    )
}

/// A function of `.eh_frame` whose shared entry is `back` bytes before this one.
pub(crate) fn fde(back: usize, start: u64, length: u64, instructions: &[u8]) -> Vec<u8> {
    // Relative to the word itself, which is behind the length.
    fde_with_id(
        u32::try_from(back + 4).unwrap(),
        start,
        length,
        instructions,
    )
}

pub(crate) fn fde_with_id(id: u32, start: u64, length: u64, instructions: &[u8]) -> Vec<u8> {
    entry(
        id,
        &[&start.to_le_bytes(), &length.to_le_bytes(), instructions].concat(),
    )
}

/// DW_CFA_def_cfa_offset.
pub(crate) fn cfa_offset(offset: u8) -> [u8; 2] {
    [0x0e, offset]
}

/// DW_CFA_advance_loc.
pub(crate) fn advance(bytes: u8) -> u8 {
    0x40 | bytes
}

/// The frame begins so many bytes above the stack pointer.
pub(crate) fn sp(cfa_offset: i32) -> Rule {
    Rule {
        cfa: Cfa::Sp,
        cfa_offset,
        ..Rule::default()
    }
}

/// Sets a word of a file, as for a field of [`elf`]'s headers.
pub(crate) fn put(file: &mut [u8], at: usize, value: u64) {
    file[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Sets the address of a file's first section.
pub(crate) fn put_address(file: &mut [u8], value: u64) {
    let headers = file[40..48].first_chunk().expect("e_shoff");
    put(file, u64::from_le_bytes(*headers) as usize + 64 + 16, value);
}
