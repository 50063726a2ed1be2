//! Functions of a file without call frame information whose frames their code tells.

use elf::{Error, Load, Source, read};
use object::LittleEndian as LE;
use object::elf::{STT_FUNC, SectionHeader64, Sym64};
use object::read::elf::{SectionHeader, Sym};

use crate::architecture::Architecture;
use crate::header::Kind;
use crate::machine::is_leaf;
use crate::sections::CfiSection;

/// The most symbols looked at, and bytes of one function: a vDSO has seven, of some hundred bytes each.
const MAX_SYMBOLS: u64 = 64;
const MAX_FUNCTION: u64 = 4096;

/// Adds those among the file's dynamic symbols, where nothing describes its code.
pub(crate) fn add<S: Source + ?Sized>(
    source: &S,
    architecture: Architecture,
    named: &[(&[u8], &SectionHeader64<LE>)],
    loads: &[Load],
    sections: &mut Vec<CfiSection>,
) -> Result<(), Error> {
    let symbols = named.iter().find(|(name, _)| *name == b".dynsym");
    let range = symbols.and_then(|(_, section)| section.file_range(LE));
    let Some((at, size)) = range.filter(|_| sections.is_empty()) else {
        return Ok(());
    };
    let size_of_symbol = size_of::<Sym64<LE>>() as u64;
    for nth in 0..(size / size_of_symbol).min(MAX_SYMBOLS) {
        let bytes = read(
            source,
            at.saturating_add(nth * size_of_symbol),
            size_of_symbol,
        )?;
        let Ok((symbol, _)) = object::from_bytes::<Sym64<LE>>(&bytes) else {
            continue;
        };
        let (address, size) = (symbol.st_value(LE), symbol.st_size(LE));
        let is_function = symbol.st_type() == STT_FUNC && (1..=MAX_FUNCTION).contains(&size);
        let inside = |load: &Load| load.offset.checked_add(load.inside(address)?);
        let Some(place) = loads.iter().find_map(inside).filter(|_| is_function) else {
            continue;
        };
        let bytes = read(source, place, size)?;
        if is_leaf(architecture, &bytes) {
            sections.push(CfiSection {
                kind: Kind::Leaf,
                address,
                bytes,
            });
        }
    }
    Ok(())
}
