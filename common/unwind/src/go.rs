//! Go's function table (pclntab) as call frame information: Go writes `.debug_frame`, which stripping takes away, and
//! keeps for itself how far below its caller's the stack pointer is, for every instruction.
//!
//! The layouts are those that Go's `runtime/symtab.go` and `cmd/link/internal/ld/pcln.go` have, on little-endian
//! machines with 8-byte pointers.

use crate::counts::Counts;
use crate::entries::{Context, Entry, MAX_WORK, Section};
use crate::error::Error;
use crate::header::u32_at;
use crate::rows::Rows;
use crate::rule::{Cfa, FpMode, Rule};
use crate::text::Text;

/// Functions of one program; the largest have some 100,000.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Rows of one function; generated code has thousands.
const MAX_STEPS: usize = 1 << 16;
/// In a function's flags: nobody calls it.
const TOP_FRAME: u8 = 1;

/// How a table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Go 1.2: all is relative to the table, code addresses are pointers.
    Pointers,
    /// Go 1.16: the header says where the parts are.
    Split,
    /// Go 1.18 and 1.20: code addresses are relative to the text's start. With the place of a function's flags.
    Relative(usize),
}

/// A `.gopclntab` section.
pub(crate) struct Go<'a> {
    bytes: &'a [u8],
    layout: Layout,
    text: u64,
    functions: usize,
    functab: usize,
    pctab: usize,
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Go's variable-length numbers, least significant seven bits first.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

impl<'a> Go<'a> {
    /// `text` is where the text starts if the table does not say it: since Go 1.26 the linker leaves that to others.
    pub(crate) fn new(bytes: &'a [u8], text: u64) -> Option<Self> {
        let [0, 0, 1, 8] = *bytes.get(4..)?.first_chunk()? else {
            return None;
        };
        let layout = match u32_at(bytes, 0)? {
            0xffff_fffb => Layout::Pointers,
            0xffff_fffa => Layout::Split,
            0xffff_fff0 => Layout::Relative(37),
            0xffff_fff1 => Layout::Relative(41),
            _ => return None,
        };
        let word = |n: usize| usize::try_from(word_at(bytes, 8 + 8 * n)?).ok();
        let (pctab, functab, start) = match layout {
            Layout::Pointers => (0, 16, 0),
            Layout::Split => (word(5)?, word(6)?, 0),
            Layout::Relative(_) => (word(6)?, word(7)?, word(2)?),
        };
        Some(Self {
            bytes,
            layout,
            text: if start == 0 { text } else { start as u64 },
            functions: word(0).filter(|functions| *functions <= MAX_FUNCTIONS)?,
            functab,
            pctab,
        })
    }

    /// Bytes of an address.
    fn width(&self) -> usize {
        match self.layout {
            Layout::Relative(_) => 4,
            Layout::Pointers | Layout::Split => 8,
        }
    }

    fn number(&self, at: usize) -> Option<u64> {
        match self.layout {
            Layout::Relative(_) => u32_at(self.bytes, at).map(u64::from),
            Layout::Pointers | Layout::Split => word_at(self.bytes, at),
        }
    }

    fn address(&self, at: usize) -> Option<u64> {
        match self.layout {
            Layout::Relative(_) => self.text.checked_add(self.number(at)?),
            Layout::Pointers | Layout::Split => self.number(at),
        }
    }

    /// Start, end and place of the data of a function.
    fn function(&self, index: usize) -> Option<(u64, u64, usize)> {
        let at = self.functab.checked_add(2 * self.width() * index)?;
        let data = usize::try_from(self.number(at + self.width())?).ok()?;
        let base = match self.layout {
            Layout::Pointers => 0,
            Layout::Split | Layout::Relative(_) => self.functab,
        };
        let end = self.address(at + 2 * self.width())?;
        Some((self.address(at)?, end, base.checked_add(data)?))
    }

    fn is_top(&self, data: usize) -> Option<bool> {
        let Layout::Relative(flags) = self.layout else {
            return Some(false);
        };
        Some(self.bytes.get(data.checked_add(flags)?)? & TOP_FRAME != 0)
    }

    /// Adds rows up to where they are readable; `None` if not to the function's end.
    fn steps(
        &self,
        entry: &Entry,
        rows: &mut Rows,
        at: &mut u64,
        work: &mut u64,
    ) -> Option<Result<(), Error>> {
        if self.is_top(entry.offset)? {
            *at = entry.end;
            return Some(rows.push(entry.start, Rule::END));
        }
        // The address, the name, the arguments' size, the place of deferred calls: then what is looked for.
        let pcsp = u32_at(self.bytes, entry.offset.checked_add(self.width() + 12)?)?;
        let mut next = self.pctab.checked_add(usize::try_from(pcsp).ok()?)?;
        let mut depth = -1_i32;
        for step in 0..MAX_STEPS {
            if *at >= entry.end {
                break;
            }
            *work += 1;
            if *work > MAX_WORK {
                return Some(Err(Error::TooLarge("Go's function table")));
            }
            let delta = varint(self.bytes, &mut next)?;
            if delta == 0 && step > 0 {
                // What is left is padding.
                return Some(Ok(()));
            }
            // Zigzag: the lowest bit is the sign.
            let change = (delta >> 1).cast_signed() ^ -(delta & 1).cast_signed();
            depth = depth.checked_add(change)?;
            let rule = Rule {
                cfa: Cfa::Sp,
                cfa_offset: depth.checked_add(8).filter(|offset| *offset >= 8)?,
                ..saved_fp(depth)
            };
            if let Err(error) = rows.push(*at, rule) {
                return Some(Err(error));
            }
            *at = at.checked_add(varint(self.bytes, &mut next)?.into())?;
        }
        (*at >= entry.end).then_some(Ok(()))
    }
}

/// Functions with a frame keep their caller's frame pointer at its top.
fn saved_fp(depth: i32) -> Rule {
    let (fp, fp_offset) = if depth >= 8 {
        (FpMode::AtCfa, -16)
    } else {
        (FpMode::Same, 0)
    };
    Rule {
        fp,
        fp_offset,
        ..Rule::default()
    }
}

impl Section for Go<'_> {
    fn collect(
        &mut self,
        section: usize,
        text: &Text,
        entries: &mut Vec<Entry>,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        for index in 0..self.functions {
            let Some((start, end, offset)) = self.function(index) else {
                counts.dropped_fdes += (self.functions - index) as u64;
                break;
            };
            counts.fdes += 1;
            let range = end
                .checked_sub(start)
                .and_then(|size| text.clip(start, size));
            let Some(range) = range.filter(|_| start != 0) else {
                counts.dropped_fdes += 1;
                continue;
            };
            entries.push(Entry::new(range, section, offset));
        }
        Ok(())
    }

    fn rows(
        &mut self,
        entry: &Entry,
        _: &mut Context,
        rows: &mut Rows,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        let mut at = entry.start;
        match self.steps(entry, rows, &mut at, &mut counts.work) {
            Some(result) => result,
            None => {
                counts.broken_fdes += 1;
                rows.push(at.min(entry.end - 1), Rule::UNCOVERED)
            }
        }
    }
}
