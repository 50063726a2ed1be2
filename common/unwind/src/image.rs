//! What is needed of an ELF file: its segments and its call frame information.
//!
//! Reads in bounded pieces and never maps: the file belongs to somebody else, who may lie or truncate it meanwhile.

use std::fs::File;

use elf::{Error, Limits, Load, Pieces, Source};
use object::LittleEndian as LE;
use object::elf::{FileHeader64, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::architecture::Architecture;
use crate::cfi::table;
use crate::counts::Counts;
use crate::header::Kind;
use crate::key;
use crate::leaves;
use crate::sections::{CfiSection, MAX_CFI, add, add_go, from_segment};
use crate::table::Table;
use crate::text::Text;

/// The most segments and sections looked at; real files have 20 and 40.
const MAX_HEADERS: usize = 4096;
/// Largest single header table or string table; sections are not read through these.
const LIMITS: Limits = Limits {
    piece: 4 << 20,
    name: 4096,
    all: u64::MAX,
};

/// What is needed of an ELF file.
#[derive(Clone, Debug)]
pub struct Image {
    architecture: Architecture,
    loads: Vec<Load>,
    sections: Vec<CfiSection>,
}

impl Image {
    /// Reads a file.
    pub fn read(file: &File) -> Result<Self, Error> {
        Self::from_source(file, MAX_CFI)
    }

    /// The same of a file of which no more than `limit` bytes are to be held; [`Error::TooLarge`] for what has more.
    pub fn read_within(file: &File, limit: u64) -> Result<Self, Error> {
        Self::from_source(file, limit.min(MAX_CFI))
    }

    /// The same for an image in memory, such as the vDSO's.
    pub fn from_memory(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_source(bytes, MAX_CFI)
    }

    /// The architecture of its code.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The segments that are mapped.
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// What is added to addresses of the file where the mapping of `offset` starts at `start`.
    ///
    /// `None` when no segment is mapped from that offset.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let mut holding = self.loads.iter().filter(|load| load.holds(offset));
        // A page at the border of two segments is mapped twice; code is asked for.
        let load = holding.clone().find(|load| load.is_executable());
        let load = load.or_else(|| holding.next())?;
        Some(load.bias(start, offset))
    }

    /// Whether there is any call frame information.
    pub fn has_cfi(&self) -> bool {
        let mut cfi = self
            .sections
            .iter()
            .filter(|section| section.kind != Kind::Plt);
        cfi.any(|section| !section.bytes.is_empty())
    }

    /// Gives back the memory of the call frame information; the segments stay.
    pub fn forget_cfi(&mut self) {
        self.sections = Vec::new();
    }

    /// Equal for files with equal tables, in this process; a build ID could be forged.
    pub fn content_key(&self) -> u128 {
        key::of(&(self.architecture, &self.loads, &self.sections))
    }

    /// The unwind table. Without call frame information it is empty.
    pub fn table(&self) -> Result<(Table, Counts), Error> {
        table(self.architecture, &self.sections, &self.text())
    }

    fn text(&self) -> Text {
        let code = self.loads.iter().filter(|load| load.is_executable());
        Text::new(
            code.map(|load| load.address..load.address.saturating_add(load.memory_size))
                .collect(),
        )
    }

    fn from_source<S: Source + ?Sized>(source: &S, limit: u64) -> Result<Self, Error> {
        let architecture = architecture(source)?;
        let pieces = Pieces::new(source, LIMITS);
        let data = &pieces;
        let malformed = |part| move |_| Error::Malformed(part);
        let header = FileHeader64::<LE>::parse(data).map_err(malformed("file header"))?;
        let segments = header.program_headers(LE, data);
        let segments = segments.map_err(malformed("program headers"))?;
        if segments.len() > MAX_HEADERS {
            return Err(Error::TooLarge("program headers"));
        }
        let loads: Vec<_> = segments
            .iter()
            .filter(|segment| segment.p_type(LE) == PT_LOAD)
            .map(|segment| Load::of(segment, LE))
            .collect();
        let mut sections = Vec::new();
        // Section headers may be missing or cut off: only segments matter to the kernel.
        if let Ok(table) = header.sections(LE, data) {
            let named: Vec<_> = table
                .iter()
                .take(MAX_HEADERS)
                .map(|section| (table.section_name(LE, section).unwrap_or_default(), section))
                .collect();
            for (name, section) in &named {
                add(source, name, section, limit, &mut sections)?;
            }
            add_go(source, &named, limit, &mut sections)?;
            leaves::add(source, architecture, &named, &loads, &mut sections)?;
        }
        if !sections.iter().any(|section| section.kind == Kind::EhFrame)
            && let Some(header) = segments.iter().find(|s| s.p_type(LE) == PT_GNU_EH_FRAME)
        {
            let found = from_segment(source, header, &loads, (limit, &sections))?;
            sections.extend(found);
        }
        Ok(Self {
            architecture,
            loads,
            sections,
        })
    }
}

fn architecture<S: Source + ?Sized>(source: &S) -> Result<Architecture, Error> {
    let mut ident = [0; 20];
    if source.size()? < ident.len() as u64 {
        return Err(Error::NotElf);
    }
    source.read_exact_at(&mut ident, 0)?;
    let [m0, m1, m2, m3, class, data, ..] = ident;
    if [m0, m1, m2, m3] != *b"\x7fELF" {
        return Err(Error::NotElf);
    }
    let known = Architecture::of(u16::from_le_bytes([ident[18], ident[19]]));
    // ELFCLASS64, ELFDATA2LSB.
    known
        .filter(|_| (class, data) == (2, 1))
        .ok_or(Error::OtherMachine)
}
