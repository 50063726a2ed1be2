//! The few facts about an ELF file that are needed before its symbols: segments, build ID, where debug data may be.
//!
//! Reads headers only, each in bounded pieces: the file may be a gigabyte long or lie about itself.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::elf::{
    EM_AARCH64, EM_X86_64, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_DYNAMIC, PT_LOAD,
    PT_NOTE, R_AARCH64_RELATIVE, R_X86_64_RELATIVE, SHF_EXECINSTR,
};
use object::read::ReadRef;
use object::read::elf::{
    CompressionHeader, FileHeader, NoteIterator, ProgramHeader, SectionHeader,
};
use object::{Endianness, NativeEndian};

use crate::load::Load;
use crate::source::{Limits, Pieces};

/// Largest single header table, note segment or string table that is read, and four such in all: honest files take less than
/// 1 MiB, but there may be 4096 notes of 4 MiB each in a file of 20 KB.
const LIMITS: Limits = Limits {
    piece: 4 << 20,
    name: 4096,
    all: 16 << 20,
};
/// The most segments and sections looked at; real files have 20 and 40 (thousands with -ffunction-sections objects).
const MAX_ENTRIES: usize = 4096;
/// Most bytes of a debug file's name: one more than any file's has.
const MAX_LINK: usize = 256;

/// Marks that a Go program carries.
#[derive(Clone, Debug, Default)]
pub struct GoMarks {
    /// One of Go's own sections or notes is there.
    pub present: bool,
    /// Address of the function table.
    pub table: Option<u64>,
    /// Address of `runtime.firstmoduledata`, which has a section since Go 1.26.
    pub module_data: Option<u64>,
}

/// Relocations that the dynamic linker will apply to the file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Dynamic {
    /// Address of the dynamic section.
    pub address: u64,
    /// Relocation type of plain pointers.
    pub relative: u32,
}

/// Facts about one ELF file.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    /// The segments that are mapped.
    pub loads: Vec<Load>,
    /// Address ranges of the sections with code.
    pub code: Vec<Range<u64>>,
    /// At most 64 bytes.
    pub build_id: Option<Vec<u8>>,
    /// `.debug_info` is inside.
    pub dwarf: bool,
    /// Name, at most 256 bytes, and CRC32 of the separate debug file.
    pub debug_link: Option<(Vec<u8>, u32)>,
    /// Refers to a dwz file.
    pub supplementary: bool,
    /// File range of `.gnu_debugdata`.
    pub mini_debug: Option<Range<u64>>,
    /// Bytes that compressed sections claim to have.
    pub inflated: u64,
    /// Relocations of 64-bit little-endian files for machines whose relocations are known.
    pub dynamic: Option<Dynamic>,
    /// Marks of a Go program.
    pub go: GoMarks,
    /// The section headers could be read to their end.
    pub sectioned: bool,
}

impl Headers {
    /// Reads them; `None` when it is no ELF file, its program headers are broken, or it would have too much read.
    pub fn read(file: &File) -> Option<Self> {
        let data = Pieces::new(file, LIMITS);
        let mut class = [0; 5];
        file.read_exact_at(&mut class, 0).ok()?;
        let headers = match class[4] {
            1 => parse::<FileHeader32<Endianness>, _>(&data),
            2 => parse::<FileHeader64<Endianness>, _>(&data),
            _ => None,
        };
        // A link that was left out would be one that the file does not have.
        headers.filter(|_| !data.overdrawn())
    }

    /// ELF virtual address of a file offset.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let covers = |l: &&Load| l.offset <= offset && offset - l.offset < l.file_size;
        let load = self.loads.iter().filter(|l| l.is_executable()).find(covers);
        let load = load.or_else(|| self.loads.iter().find(covers))?;
        Some(load.address.wrapping_add(offset - load.offset))
    }

    /// File offset of an ELF virtual address, and how many bytes of its segment follow in the file.
    pub fn offset(&self, address: u64) -> Option<(u64, u64)> {
        self.loads.iter().find_map(|l| {
            let inside = l.inside(address)?;
            Some((l.offset.checked_add(inside)?, l.file_size - inside))
        })
    }

    /// True if code is loaded there.
    pub fn is_code(&self, address: u64) -> bool {
        let mut code = self.loads.iter().filter(|load| load.is_executable());
        code.any(|load| load.inside(address).is_some())
    }

    /// True if both addresses lie in one section (or nobody knows): a symbol without a size ends with its section at the
    /// latest, else `_init` would name the whole PLT.
    pub fn same_section(&self, a: u64, b: u64) -> bool {
        self.code.is_empty() || self.code.iter().any(|r| r.contains(&a) && r.contains(&b))
    }
}

/// True if the file starts like an ELF file.
pub fn is_elf(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}

fn parse<'a, H, R>(data: R) -> Option<Headers>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut headers = Headers::default();
    for segment in header
        .program_headers(endian, data)
        .ok()?
        .iter()
        .take(MAX_ENTRIES)
    {
        match segment.p_type(endian) {
            PT_LOAD => headers.loads.push(Load::of(segment, endian)),
            PT_NOTE => {
                if let Ok(Some(notes)) = segment.notes(endian, data) {
                    headers.go.present |= has_go_note(notes);
                }
                if headers.build_id.is_none()
                    && let Ok(Some(notes)) = segment.notes(endian, data)
                {
                    headers.build_id = build_id(notes, endian).map(<[u8]>::to_vec);
                }
            }
            PT_DYNAMIC => {
                headers.dynamic = relative::<H>(header, endian).map(|relative| Dynamic {
                    address: segment.p_vaddr(endian).into(),
                    relative,
                });
            }
            _ => {}
        }
    }
    // Section headers may be cut off; the segments alone still place addresses.
    headers.sectioned = sections::<H, _>(header, endian, data, &mut headers).is_ok_and(|n| n > 0);
    Some(headers)
}

/// 32-bit x86 and ARM keep such pointers in the place itself.
fn relative<H: FileHeader<Endian = Endianness>>(header: &H, endian: Endianness) -> Option<u32> {
    match header.e_machine(endian) {
        _ if !header.is_type_64() || endian == Endianness::Big => None,
        EM_X86_64 => Some(R_X86_64_RELATIVE.0),
        EM_AARCH64 => Some(R_AARCH64_RELATIVE.0),
        _ => None,
    }
}

/// The build ID among notes in this machine's byte order, such as the kernel shows of itself.
pub fn build_id_in_notes(notes: &[u8]) -> Option<&[u8]> {
    let notes = NoteIterator::<FileHeader64<NativeEndian>>::new(NativeEndian, 4, notes);
    build_id(notes.ok()?, NativeEndian)
}

fn build_id<'a, H: FileHeader>(
    mut notes: NoteIterator<'a, H>,
    endian: H::Endian,
) -> Option<&'a [u8]> {
    while let Ok(Some(note)) = notes.next() {
        if note.n_type(endian) == NT_GNU_BUILD_ID && note.name() == b"GNU" {
            return Some(note.desc()).filter(|id| (1..=64).contains(&id.len()));
        }
    }
    None
}

fn has_go_note<H: FileHeader>(mut notes: NoteIterator<'_, H>) -> bool {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"Go" {
            return true;
        }
    }
    false
}

fn sections<'a, H, R>(
    header: &'a H,
    endian: Endianness,
    data: R,
    headers: &mut Headers,
) -> object::read::Result<usize>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let table = header.sections(endian, data)?;
    for section in table.iter().take(MAX_ENTRIES) {
        if let Ok(Some((compression, _, _))) = section.compression(endian, data) {
            let size: u64 = compression.ch_size(endian).into();
            headers.inflated = headers.inflated.saturating_add(size);
        }
        if section.sh_flags(endian).contains(SHF_EXECINSTR) {
            let start: u64 = section.sh_addr(endian).into();
            headers
                .code
                .push(start..start.saturating_add(section.sh_size(endian).into()));
        }
        match table.section_name(endian, section)? {
            b".debug_info" | b".zdebug_info" => {
                headers.dwarf = section.file_range(endian).is_some()
            }
            b".gnu_debuglink" => headers.debug_link = debug_link::<H, _>(section, endian, data),
            b".gnu_debugaltlink" | b".debug_sup" => headers.supplementary = true,
            b".gnu_debugdata" => {
                headers.mini_debug = section
                    .file_range(endian)
                    .map(|(at, size)| at..at.saturating_add(size));
            }
            name => go_section(name, section.sh_addr(endian).into(), &mut headers.go),
        }
    }
    Ok(table.len())
}

/// Position-independent programs have the table in `.data.rel.ro.gopclntab`.
fn go_section(name: &[u8], address: u64, go: &mut GoMarks) {
    match name {
        b".go.module" => go.module_data = Some(address),
        b".go.buildinfo" | b".note.go.buildid" => {}
        _ if name.ends_with(b".gopclntab") => go.table = Some(address),
        _ => return,
    }
    go.present = true;
}

fn debug_link<'a, H, R>(
    section: &H::SectionHeader,
    endian: Endianness,
    data: R,
) -> Option<(Vec<u8>, u32)>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let bytes = section.data(endian, data).ok()?;
    // A longer name stays one that nothing is found by: the file does refer to another.
    let end = bytes.iter().position(|&b| b == 0)?;
    let crc = bytes
        .get((end + 1).next_multiple_of(4)..)?
        .get(..4)?
        .try_into()
        .ok()?;
    let crc = if endian == Endianness::Little {
        u32::from_le_bytes(crc)
    } else {
        u32::from_be_bytes(crc)
    };
    Some((bytes[..end.min(MAX_LINK)].to_vec(), crc))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 64-bit headers, sparse, with so many notes or debug links of `size` bytes each.
    fn sparse(notes: u16, links: u16, size: u64) -> File {
        let names = b"\0.gnu_debuglink\0";
        let sections_at = 64 + 56 * u64::from(notes);
        let names_at = sections_at + 64 * (u64::from(links) + 2);
        let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
        let mut put = |words: &[u64]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
        let halves = |h: [u16; 4]| h.iter().rev().fold(0, |w, h| w << 16 | u64::from(*h));
        put(&[0, 64, sections_at, halves([0, 0, 64, 56])]);
        put(&[halves([notes, 64, links + 2, links + 1])]);
        let place = |n: u16| (1 << 20) + u64::from(n) * size;
        for n in 0..notes {
            put(&[4, place(n), 0, 0, size, size, 4]);
        }
        put(&[0; 8]);
        for n in 0..links {
            put(&[1 | 1 << 32, 0, 0, place(n), size, 0, 1, 0]);
        }
        put(&[3 << 32, 0, 0, names_at, names.len() as u64, 0, 1, 0]);
        out.extend(names);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&out, 0).unwrap();
        file.set_len(place(notes.max(links))).unwrap();
        file
    }

    #[test]
    fn few_large_notes_and_many_small_ones_are_read() {
        for (notes, links, size) in [(1, 1, 4 << 20), (4000, 0, 1024), (0, 4000, 1024)] {
            let headers = Headers::read(&sparse(notes, links, size)).expect("within the limits");
            assert!(headers.sectioned);
            assert_eq!(headers.debug_link.is_some(), links > 0);
        }
    }

    #[test]
    fn a_file_that_would_have_gigabytes_read_is_refused() {
        assert!(Headers::read(&sparse(300, 0, 4 << 20)).is_none());
        assert!(Headers::read(&sparse(0, 300, 4 << 20)).is_none());
    }

    #[test]
    fn a_link_longer_than_any_name_is_cut() {
        let file = sparse(0, 1, 8192);
        file.write_all_at(&[b'x'; 5000], 1 << 20).unwrap();
        let (name, _) = Headers::read(&file).unwrap().debug_link.unwrap();
        assert_eq!(name, [b'x'; MAX_LINK]);
    }

    fn note(owner: &[u8], kind: u32, text: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [owner.len() as u32, text.len() as u32, kind] {
            note.extend(word.to_ne_bytes());
        }
        for bytes in [owner, text] {
            note.extend(bytes);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_id_is_found_behind_other_notes_and_damage_is_no_id() {
        let notes = [
            note(b"Linux\0", 3, b"xy"),
            note(b"GNU\0", 1, b"abi"),
            note(b"GNU\0", 3, &[0xc0, 0xff, 0xee]),
        ]
        .concat();
        assert_eq!(build_id_in_notes(&notes), Some(&[0xc0, 0xff, 0xee][..]));
        assert_eq!(build_id_in_notes(&notes[..notes.len() - 2]), None);
        assert_eq!(build_id_in_notes(&[0xff; 40]), None);
        assert_eq!(build_id_in_notes(&[]), None);
        assert_eq!(build_id_in_notes(&note(b"GNU\0", 3, &[1; 65])), None);
    }
}
