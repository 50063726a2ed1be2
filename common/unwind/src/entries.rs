//! The entries of one section with call frame information: frame descriptions (FDEs) and what they share (CIEs).

use std::collections::HashMap;
use std::ops::Range;

use gimli::{BaseAddresses, CommonInformationEntry, FrameDescriptionEntry, UnwindContext};
use gimli::{UnwindOffset, UnwindSection};

use crate::cfi::Counts;
use crate::convert::{Reader, Storage, rule};
use crate::error::Error;
use crate::rows::Rows;
use crate::rule::Rule;

/// The most frame descriptions of one file; libLLVM has 0.2 M.
const MAX_FDES: usize = 4 << 20;
/// Larger shared entries, in bytes, are not believed: their instructions are run again for each of their functions.
const MAX_CIE: usize = 1024;
/// Shared entries kept parsed; real files have up to a few dozen.
const MAX_CIES: usize = 4096;
/// The most bytes of instructions run, shared ones once for each function; libLLVM has 10 MB. A byte costs 50 ns at
/// the very worst (`DW_CFA_remember_state`), a few usually.
const MAX_WORK: u64 = 256 << 20;

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

/// What a section holds. Of two that describe the same address the earlier kind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    EhFrame,
    DebugFrame,
    /// Code without a description, which is always the same.
    Plt,
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
    pub(crate) kind: Kind,
    pub(crate) bytes: &'a [u8],
    pub(crate) section: S,
    pub(crate) bases: BaseAddresses,
    pub(crate) shared: HashMap<usize, Option<CommonInformationEntry<Reader<'a>>>>,
}

impl<'a, S: UnwindSection<Reader<'a>>> Parsed<'a, S> {
    fn fde(&mut self, offset: usize) -> gimli::Result<FrameDescriptionEntry<Reader<'a>>> {
        let shared = &mut self.shared;
        self.section.fde_from_offset(
            &self.bases,
            S::Offset::from(offset),
            |section, bases, at| {
                if shared.len() >= MAX_CIES {
                    shared.clear();
                }
                shared
                    .entry(UnwindOffset::into(at))
                    .or_insert_with(|| {
                        let cie = section.cie_from_offset(bases, at).ok();
                        cie.filter(|cie| cie.entry_len() <= MAX_CIE)
                    })
                    .clone()
                    .ok_or(gimli::Error::NoEntryAtGivenOffset(0))
            },
        )
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
            let Some((fde, range)) = self.fde(offset).ok().and_then(|fde| {
                let length = Some(fde.len()).filter(|_| fde.initial_address() != 0)?;
                let range = text.clip(fde.initial_address(), length)?;
                Some((fde, range))
            }) else {
                counts.dropped_fdes += 1;
                continue;
            };
            counts.work += (fde.entry_len() + fde.cie().entry_len()) as u64;
            if entries.len() >= MAX_FDES || counts.work > MAX_WORK {
                return Err(Error::TooLarge("call frame information"));
            }
            entries.push(Entry {
                start: range.start,
                end: range.end,
                offset,
                section,
            });
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
                let rule = rule(row, &self.section);
                counts.unsupported_rows += u64::from(rule == Rule::UNSUPPORTED);
                rows.push(start, rule)?;
            }
        }
        if end < entry.end {
            counts.broken_fdes += 1;
            rows.push(end, Rule::UNSUPPORTED)?;
        }
        Ok(())
    }
}

/// The start of an entry.
struct Header {
    is_fde: bool,
    /// Offset of the next entry.
    end: usize,
}

impl Header {
    /// `None` at the end of the section, at a terminator, and at an entry that is cut off.
    fn read(bytes: &[u8], at: usize, kind: Kind) -> Option<Self> {
        let short = u32_at(bytes, at)?;
        let (body, length, wide) = match short {
            0 if kind == Kind::EhFrame => return None,
            // An assembler's mistake (NASM before 2.15), known to readers of .debug_frame.
            0 => {
                return Some(Self {
                    is_fde: false,
                    end: at + 4,
                });
            }
            u32::MAX => {
                let length = bytes.get(at.checked_add(4)?..)?.first_chunk()?;
                (at + 12, u64::from_le_bytes(*length), true)
            }
            short => (at + 4, short.into(), false),
        };
        let end = body.checked_add(usize::try_from(length).ok()?)?;
        if end > bytes.len() {
            return None;
        }
        let id = u32_at(&bytes[..end], body);
        let is_fde = match kind {
            Kind::EhFrame => id.is_some_and(|id| id != 0),
            Kind::DebugFrame if wide => u32_at(&bytes[..end], body + 4)
                .is_some_and(|high| (id, high) != (Some(u32::MAX), u32::MAX)),
            Kind::DebugFrame => id.is_some_and(|id| id != u32::MAX),
            Kind::Plt => false,
        };
        Some(Self { is_fde, end })
    }
}

/// How many of the bytes are entries.
pub(crate) fn used(bytes: &[u8], kind: Kind) -> usize {
    let mut end = 0;
    while let Some(header) = Header::read(bytes, end, kind) {
        end = header.end;
    }
    end
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Where code is, sorted.
pub(crate) struct Text(Vec<Range<u64>>);

impl Text {
    pub(crate) fn new(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        Self(ranges)
    }

    /// The part of a function that is in the file's code. Linkers leave descriptions of discarded functions behind.
    pub(crate) fn clip(&self, start: u64, length: u64) -> Option<Range<u64>> {
        let end = start.checked_add(length)?;
        let after = self.0.partition_point(|range| range.start <= start);
        let range = self.0.get(after.checked_sub(1)?)?;
        let end = end.min(range.end);
        (start < end).then_some(start..end)
    }
}
