//! Tables that tell the line of an instruction.

use crate::layout::Positions;

/// Bytes of an instruction.
pub(crate) const UNIT: u32 = 2;
/// 3.10's mark of instructions that have no line.
const NO_LINE: i8 = -128;

/// The line table of a code object, bounded when it was read.
#[derive(Clone, Debug)]
pub struct Lines {
    pub(crate) first: u32,
    pub(crate) form: Positions,
    pub(crate) table: Box<[u8]>,
}

impl Lines {
    /// The line of the instruction so many bytes behind the first one; `None`: it has none, or the table ends before.
    pub(crate) fn at(&self, position: u32) -> Option<u32> {
        let line = match self.form {
            Positions::Steps => self.by_steps(position),
            Positions::Ranges => self.by_ranges(position)?,
            Positions::Locations => self.by_locations(position)?,
        };
        u32::try_from(line).ok()
    }

    /// Steps of the address, from 0 to 255 bytes, and of the line, each in a byte.
    fn by_steps(&self, position: u32) -> i64 {
        let (mut at, mut line) = (0_u64, i64::from(self.first));
        for step in self.table.chunks_exact(2) {
            at += u64::from(step[0]);
            if at > u64::from(position) {
                break;
            }
            line += i64::from(step[1].cast_signed());
        }
        line
    }

    /// Lengths of ranges, and by how far their lines are off the last one's, each in a byte.
    fn by_ranges(&self, position: u32) -> Option<i64> {
        let (mut end, mut line) = (0_u64, i64::from(self.first));
        for range in self.table.chunks_exact(2) {
            let step = range[1].cast_signed();
            end += u64::from(range[0]);
            if step != NO_LINE {
                line += i64::from(step);
            }
            if u64::from(position) < end {
                return (step != NO_LINE).then_some(line);
            }
        }
        None
    }

    /// Locations of 3.11: each begins with a byte whose highest bit is set, with its form in four bits and its length in three.
    fn by_locations(&self, position: u32) -> Option<i64> {
        let (mut end, mut line) = (0_u64, i64::from(self.first));
        let mut rest = &self.table[..];
        while let Some((head, behind)) = rest.split_first() {
            let has_begun = |byte: &u8| byte & 0x80 != 0;
            let length = behind.iter().position(has_begun).unwrap_or(behind.len());
            let (fields, next) = behind.split_at(length);
            let form = head >> 3 & 15;
            line += match form {
                // With columns on the same line, nothing, a number, one, two.
                0..=9 | 15 => 0,
                13 | 14 => signed(fields),
                _ => i64::from(form) - 10,
            };
            end += u64::from(u32::from(head & 7) + 1) * u64::from(UNIT);
            if u64::from(position) < end {
                return (form != 15).then_some(line);
            }
            rest = next;
        }
        None
    }
}

/// The number at the beginning: six bits a byte, the lowest first, the last byte without the next bit; the sign is the lowest bit.
fn signed(bytes: &[u8]) -> i64 {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(6).enumerate() {
        value |= u64::from(byte & 63) << (6 * index);
        if byte & 64 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 0 {
        magnitude
    } else {
        -magnitude
    }
}
