//! Go's function table (pclntab) as call frame information: Go writes `.debug_frame`, which stripping takes away, and
//! keeps for itself how far below its caller's the stack pointer is, for every instruction.
//!
//! The layouts are those that Go's `runtime/symtab.go` and `cmd/link/internal/ld/pcln.go` have.

use elf::Error;
use elf::go::{Header, Image, Layout};

use crate::architecture::Architecture;
use crate::counts::Counts;
use crate::entries::{Context, Entry, MAX_WORK, Section};
use crate::header::u32_at;
use crate::machine::go_rule;
use crate::rows::Rows;
use crate::rule::Rule;
use crate::text::Text;

/// Rows of one function; generated code has thousands.
const MAX_STEPS: usize = 1 << 16;
/// In a function's flags: nobody calls it.
const TOP_FRAME: u8 = 1;

/// A `.gopclntab` section.
pub(crate) struct Go<'a> {
    architecture: Architecture,
    bytes: &'a [u8],
    header: Header,
    text: u64,
}

/// A table alone, at address 0.
struct Bytes<'a>(&'a [u8]);

impl Image for Bytes<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        let bytes = self.0.get(at..).unwrap_or_default();
        let size = bytes.len().min(buffer.len());
        buffer[..size].copy_from_slice(&bytes[..size]);
        size
    }

    fn read_relocated(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.fill(address, buffer)
    }
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
    /// `text` is where the text starts if the table does not say it: since Go 1.26 the linker leaves that to others. `None`: the
    /// table is not one of this architecture's.
    pub(crate) fn new(bytes: &'a [u8], text: u64, architecture: Architecture) -> Option<Self> {
        let image = Bytes(bytes);
        let header = Header::read(&image, 0)?;
        if header.quantum_of_64_bits() != Some(architecture.quantum()) {
            return None;
        }
        let start = match header.text_at {
            Some(at) => header.pointer(&image, at)?,
            None => 0,
        };
        Some(Self {
            architecture,
            bytes,
            header,
            text: if start == 0 { text } else { start },
        })
    }

    fn number(&self, at: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..)?.get(..self.header.width())?;
        Some(self.header.number(bytes))
    }

    fn address(&self, at: usize) -> Option<u64> {
        let base = if self.header.text_at.is_some() {
            self.text
        } else {
            0
        };
        base.checked_add(self.number(at)?)
    }

    /// Start, end and place of the data of a function.
    fn function(&self, index: usize) -> Option<(u64, u64, usize)> {
        let width = self.header.width();
        let functab = usize::try_from(self.header.functab).ok()?;
        let at = functab.checked_add(2 * width * index)?;
        let start = self.address(at)?;
        let data = self.header.data.checked_add(self.number(at + width)?)?;
        let end = self.address(at + 2 * width)?;
        Some((start, end, usize::try_from(data).ok()?))
    }

    fn is_top(&self, data: usize) -> Option<bool> {
        let Layout::Relative { flags } = self.header.layout() else {
            return Some(false);
        };
        let at = data.checked_add(usize::try_from(flags).ok()?)?;
        Some(self.bytes.get(at)? & TOP_FRAME != 0)
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
        let pcsp = u32_at(
            self.bytes,
            entry.offset.checked_add(self.header.width() + 12)?,
        )?;
        let depths = self.header.pctab.checked_add(pcsp.into())?;
        let mut next = usize::try_from(depths).ok()?;
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
            let rule = go_rule(self.architecture, depth)?;
            if let Err(error) = rows.push(*at, rule) {
                return Some(Err(error));
            }
            let instructions = u64::from(varint(self.bytes, &mut next)?);
            *at = at.checked_add(instructions * u64::from(self.architecture.quantum()))?;
        }
        (*at >= entry.end).then_some(Ok(()))
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
        for index in 0..self.header.functions {
            let function = usize::try_from(index).ok().and_then(|at| self.function(at));
            let Some((start, end, offset)) = function else {
                counts.dropped_fdes += self.header.functions - index;
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
