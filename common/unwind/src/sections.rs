//! Finding call frame information: by section name, or where the program headers point.

use elf::{Error, Load, Source, inflate, inflate_gnu, read};
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian};
use object::LittleEndian as LE;
use object::elf::{ProgramHeader64, SHF_COMPRESSED, SectionHeader64};
use object::read::elf::{ProgramHeader, SectionHeader};

use crate::header::{Kind, used};

/// The most bytes of call frame information and Go's table that any file is read with, inflated.
pub(crate) const MAX_CFI: u64 = 256 << 20;
/// The most sections with it; real files have one of each kind.
const MAX_SECTIONS: usize = 8;

/// One section with call frame information.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CfiSection {
    pub(crate) kind: Kind,
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What may be held of a file beside what was read of it already.
fn left(limit: u64, sections: &[CfiSection]) -> u64 {
    let taken: u64 = sections.iter().map(|s| s.bytes.len() as u64).sum();
    limit.saturating_sub(taken)
}

/// Adds Go's function table, unless there is the `.debug_frame` that says the same.
pub(crate) fn add_go<S: Source + ?Sized>(
    source: &S,
    named: &[(&[u8], &SectionHeader64<LE>)],
    limit: u64,
    sections: &mut Vec<CfiSection>,
) -> Result<(), Error> {
    let find = |name: &[u8]| named.iter().find(|(other, _)| *other == name);
    let table = find(b".gopclntab").or_else(|| find(b".data.rel.ro.gopclntab"));
    let (Some((_, table)), Some((_, text))) = (table, find(b".text")) else {
        return Ok(());
    };
    let Some((offset, size)) = table.file_range(LE) else {
        return Ok(());
    };
    if sections
        .iter()
        .any(|section| section.kind == Kind::DebugFrame)
    {
        return Ok(());
    }
    if size > left(limit, sections) {
        return Err(Error::TooLarge("Go's function table"));
    }
    sections.push(CfiSection {
        kind: Kind::Go,
        address: text.sh_addr(LE),
        bytes: read(source, offset, size)?,
    });
    Ok(())
}

/// Adds a section if it is one with call frame information.
pub(crate) fn add<S: Source + ?Sized>(
    source: &S,
    name: &[u8],
    section: &SectionHeader64<LE>,
    limit: u64,
    sections: &mut Vec<CfiSection>,
) -> Result<(), Error> {
    let kind = match name {
        b".eh_frame" => Kind::EhFrame,
        b".debug_frame" | b".zdebug_frame" => Kind::DebugFrame,
        b".plt" => Kind::Plt,
        _ => return Ok(()),
    };
    // The bytes of SHT_NOBITS are in another file.
    let Some((offset, size)) = section.file_range(LE) else {
        return Ok(());
    };
    let left = left(limit, sections);
    if size > left || sections.len() >= MAX_SECTIONS {
        return Err(Error::TooLarge("call frame information"));
    }
    let raw = read(source, offset, size)?;
    // Until it is unpacked both are held.
    let bytes = if section.sh_flags(LE).contains(SHF_COMPRESSED) {
        inflate(&raw, left - size)?
    } else if name == b".zdebug_frame" {
        inflate_gnu(&raw, left - size)?
    } else {
        raw
    };
    sections.push(CfiSection {
        kind,
        address: section.sh_addr(LE),
        bytes,
    });
    Ok(())
}

/// `.eh_frame` of a file without section headers. How long it is nobody says; it has a terminator.
pub(crate) fn from_segment<S: Source + ?Sized>(
    source: &S,
    header: &ProgramHeader64<LE>,
    loads: &[Load],
    (limit, sections): (u64, &[CfiSection]),
) -> Result<Option<CfiSection>, Error> {
    /// Bytes before the search table, with the widest encodings.
    const FIXED: u64 = 4 + 8 + 8;
    let size = header.p_filesz(LE).min(FIXED);
    if size == 0 {
        return Ok(None);
    }
    let bytes = read(source, header.p_offset(LE), size)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr(LE));
    let parsed = EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8);
    let parsed = parsed.map_err(|_| Error::Malformed(".eh_frame_hdr"))?;
    let address = parsed.eh_frame_ptr().pointer();
    let found = loads.iter().find_map(|load| {
        let skip = address.checked_sub(load.address)?;
        let size = load.file_size.checked_sub(skip).filter(|&size| size > 0)?;
        Some((load.offset.checked_add(skip)?, size))
    });
    let (offset, size) = found.ok_or(Error::Malformed(".eh_frame_hdr"))?;
    let mut bytes = read(source, offset, size.min(left(limit, sections)))?;
    bytes.truncate(used(&bytes, Kind::EhFrame));
    bytes.shrink_to_fit();
    Ok(Some(CfiSection {
        kind: Kind::EhFrame,
        address,
        bytes,
    }))
}
