//! The files that the dynamic linker will be asked for.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::source::{Limits, Pieces};

/// Largest header, section or string table: libraries name up to 10 MB of symbols.
const LIMITS: Limits = Limits {
    piece: 64 << 20,
    name: 4096,
    all: 256 << 20,
};

/// The dynamic linker by its path, libraries by their names.
pub fn needed(file: &File) -> Option<Vec<PathBuf>> {
    let pieces = Pieces::new(file, LIMITS);
    let data = &pieces;
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    let segments = header.program_headers(endian, data).ok()?;
    let linkers = segments
        .iter()
        .filter_map(|segment| segment.interpreter(endian, data).ok()?);
    let mut found: Vec<_> = linkers.map(path).collect();
    let sections = header.sections(endian, data).ok()?;
    if let Ok(Some((entries, strings))) = sections.dynamic(endian, data) {
        let strings = sections.strings(endian, data, strings).ok()?;
        let needed = entries
            .iter()
            .filter(|entry| entry.d_tag(endian) == DT_NEEDED);
        found.extend(needed.filter_map(|entry| Some(path(entry.string(endian, strings).ok()?))));
    }
    Some(found)
}
