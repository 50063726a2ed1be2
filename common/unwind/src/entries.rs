//! The entries of one section with call frame information: frame descriptions (FDEs) and what they share (CIEs).

use std::collections::HashMap;
use std::ops::Range;

use gimli::{BaseAddresses, CommonInformationEntry, FrameDescriptionEntry, UnwindContext};
use gimli::{UnwindOffset, UnwindSection};

use crate::architecture::Format;
use crate::convert::{Reader, Storage};
use crate::counts::Counts;
use crate::header::{Header, Kind};
use crate::machine::{is_behind_pushed, rule};
use crate::rows::Rows;
use crate::rule::Rule;
use crate::text::Text;
use elf::Error;

/// The most frame descriptions of one file; libLLVM has 0.2 M.
const MAX_FDES: u64 = 4 << 20;
/// Larger shared entries, in bytes, are not believed: their instructions are run again for each of their functions.
const MAX_CIE: usize = 1024;
/// Shared entries kept parsed; real files have up to a few dozen.
const MAX_CIES: usize = 4096;
/// The most bytes of instructions run, shared ones once for each function; libLLVM has 10 MB. A byte costs 50 ns at
/// the very worst (`DW_CFA_remember_state`), a few usually.
pub(crate) const MAX_WORK: u64 = 256 << 20;

/// Reused for all functions; gimli's memory is in it.
pub(crate) type Context = UnwindContext<usize, Storage>;

/// Where a function is and where its description is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The first address.
    pub(crate) start: u64,
    /// Behind the last address; never before `start`.
    pub(crate) end: u64,
    /// In the section.
    pub(crate) offset: usize,
    /// Index of the section.
    pub(crate) section: usize,
}

impl Entry {
    /// Of the function at `range`, described at `offset` in `section`.
    pub(crate) fn new(range: Range<u64>, section: usize, offset: usize) -> Self {
        Self {
            start: range.start,
            end: range.end,
            offset,
            section,
        }
    }
}

/// A section with call frame information, whatever its format.
pub(crate) trait Section {
    /// Adds the entries for functions within `text`, in the order of the file.
    fn collect(
        &mut self,
        section: usize,
        text: &Text,
        entries: &mut Vec<Entry>,
        counts: &mut Counts,
    ) -> Result<(), Error>;

    /// Adds the rows of one function, from `entry.start` to `entry.end`.
    fn rows(
        &mut self,
        entry: &Entry,
        context: &mut Context,
        rows: &mut Rows,
        counts: &mut Counts,
    ) -> Result<(), Error>;
}

/// A section in gimli's terms.
pub(crate) struct Parsed<'a, S> {
    kind: Kind,
    bytes: &'a [u8],
    section: S,
    bases: BaseAddresses,
    format: Format,
    shared: HashMap<usize, Option<CommonInformationEntry<Reader<'a>>>>,
}

impl<'a, S: UnwindSection<Reader<'a>>> Parsed<'a, S> {
    /// `section` is what gimli makes of `bytes`, which are loaded at `address`; rules shall have this format.
    pub(crate) fn new(
        section: S,
        kind: Kind,
        bytes: &'a [u8],
        address: u64,
        format: Format,
    ) -> Self {
        Self {
            kind,
            bytes,
            section,
            bases: BaseAddresses::default().set_eh_frame(address),
            format,
            shared: HashMap::new(),
        }
    }

    fn fde(&mut self, offset: usize) -> gimli::Result<FrameDescriptionEntry<Reader<'a>>> {
        let (shared, bytes, kind) = (&mut self.shared, self.bytes, self.kind);
        let offset = S::Offset::from(offset);
        self.section
            .fde_from_offset(&self.bases, offset, |section, bases, at| {
                if shared.len() >= MAX_CIES {
                    shared.clear();
                }
                let parse = || {
                    let start = UnwindOffset::into(at);
                    // Before gimli looks for the end of a name in it.
                    let header = Header::read(bytes, start, kind)?;
                    if header.end - start > MAX_CIE {
                        return None;
                    }
                    section.cie_from_offset(bases, at).ok()
                };
                let cie = shared.entry(UnwindOffset::into(at)).or_insert_with(parse);
                cie.clone().ok_or(gimli::Error::NoEntryAtGivenOffset(0))
            })
    }
}

impl<'a, S: UnwindSection<Reader<'a>>> Section for Parsed<'a, S> {
    fn collect(
        &mut self,
        section: usize,
        text: &Text,
        entries: &mut Vec<Entry>,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        let mut next = 0;
        while let Some(header) = Header::read(self.bytes, next, self.kind) {
            let offset = next;
            next = header.end;
            if !header.is_fde {
                continue;
            }
            counts.fdes += 1;
            if counts.fdes > MAX_FDES {
                return Err(Error::TooLarge("call frame information"));
            }
            let Some((fde, range)) = self.fde(offset).ok().and_then(|fde| {
                let length = Some(fde.len()).filter(|_| fde.initial_address() != 0)?;
                let range = text.clip(fde.initial_address(), length)?;
                Some((fde, range))
            }) else {
                counts.dropped_fdes += 1;
                continue;
            };
            counts.work += (fde.entry_len() + fde.cie().entry_len()) as u64;
            if counts.work > MAX_WORK {
                return Err(Error::TooLarge("call frame information"));
            }
            entries.push(Entry::new(range, section, offset));
        }
        Ok(())
    }

    fn rows(
        &mut self,
        entry: &Entry,
        context: &mut Context,
        rows: &mut Rows,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        let mut end = entry.start;
        let mut newest = None;
        // The entry was parsed before, so this succeeds unless the shared instructions are broken.
        if let Ok(fde) = self.fde(entry.offset)
            && let Ok(mut table) = fde.rows(&self.section, &self.bases, context)
        {
            while let Ok(Some(row)) = table.next_row() {
                let start = row.start_address().max(end);
                end = row.end_address().min(entry.end).max(end);
                if start >= end {
                    continue;
                }
                let rule = rule(self.format, row, &self.section);
                counts.unsupported_rows += u64::from(rule == Rule::UNSUPPORTED);
                let is_second = newest.replace(start) == Some(entry.start);
                let holds_before = is_second && is_behind_pushed(self.format.architecture, row);
                rows.push(if holds_before { entry.start } else { start }, rule)?;
            }
        }
        if end < entry.end {
            counts.broken_fdes += 1;
            rows.push(end, Rule::UNSUPPORTED)?;
        }
        Ok(())
    }
}
