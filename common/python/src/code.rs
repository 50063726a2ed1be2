//! Code objects: a function's name, file and lines.

use crate::layout::Instruction;
use crate::lines::{Lines, UNIT};
use crate::memory::{Memory, Unread, fill, half_in, word_in};
use crate::runtime::Runtime;
use crate::text;

/// Bits of a checksum.
pub const CHECKSUM_BITS: u32 = 24;
/// Bytes of a code object that are summed, from `Layout::checksum` on: numbers that never change, such as those of arguments and of the
/// first line.
pub const CHECKSUM_BYTES: usize = 28;
/// Characters of a name, and of a file's name.
const MAX_NAME: usize = 1024;
const MAX_FILE: usize = 4096;
/// Bytes of a line table; a longer one's lines are not known. A module of 50,000 lines has a tenth of it.
const MAX_TABLE: usize = 4 << 20;
/// Most bytes of a code object without its instructions.
const MAX_OBJECT: usize = 1024;
/// Places in objects of a variable size.
const SIZE: u16 = 16;
const BYTES: u64 = 32;
/// Bytes from a code object's first instruction that can be traced, a number, to the instructions, from 3.11 on.
const TRACEABLE: u16 = 16;

/// Facts that a code object says.
#[derive(Clone, Debug)]
pub struct Code {
    /// The qualified name from 3.11 on, else the name; at most 1,024 characters.
    pub name: String,
    /// The file as the compiler was told of it; at most 4,096 characters.
    pub file: String,
    /// The first line.
    pub first_line: u32,
    /// The interpreter's own: a frame of it is no function's.
    pub is_internal: bool,
    /// The same as a frame that is in this code carries.
    pub checksum: u32,
    instruction_form: Instruction,
    instructions: u16,
    lines: Lines,
}

impl Code {
    /// Reads the code object at an address.
    ///
    /// # Errors
    ///
    /// When the memory cannot be read, no code object is there, or it is replaced meanwhile.
    pub fn read(memory: &impl Memory, runtime: &Runtime, address: u64) -> Result<Self, Unread> {
        let layout = &runtime.layout;
        let object = object(memory, runtime, address)?;
        let field = |offset| word_in(&object, offset);
        let name = text::read(memory, layout, field(layout.name), MAX_NAME)?;
        let file = text::read(memory, layout, field(layout.file), MAX_FILE)?;
        let table = table(memory, field(layout.lines), MAX_TABLE)?;
        let first_line = half_in(&object, layout.first_line);
        // The memory of a code object that is freed may be reused before all of it is read. Other fields change while it runs: co_warmup.
        let now = self::object(memory, runtime, address)?;
        let is_same = [layout.name, layout.file, layout.lines]
            .iter()
            .all(|at| word_in(&now, *at) == field(*at));
        if !is_same || sum_in(&now, layout.checksum) != sum_in(&object, layout.checksum) {
            return Err(Unread::Replaced);
        }
        let has_instructions = layout.instruction_form == Instruction::Address;
        Ok(Self {
            is_internal: has_instructions
                && u64::from(half_in(&object, layout.instructions - TRACEABLE)) >= field(SIZE),
            checksum: sum_in(&object, layout.checksum),
            lines: Lines {
                first: first_line,
                form: layout.positions,
                table,
            },
            instruction_form: layout.instruction_form,
            instructions: layout.instructions,
            name,
            file,
            first_line,
        })
    }

    /// The checksum of the code object at an address.
    ///
    /// # Errors
    ///
    /// When the memory cannot be read.
    pub fn checksum(memory: &impl Memory, runtime: &Runtime, address: u64) -> Result<u32, Unread> {
        let mut bytes = [0; CHECKSUM_BYTES];
        let at = address.wrapping_add(runtime.layout.checksum.into());
        fill(memory, at, &mut bytes)?;
        Ok(checksum(&bytes))
    }

    /// The line that a frame at this place is in, as [`crate::Frame::instruction`] has it. `None`: the instruction has none.
    pub fn line(&self, instruction: u32) -> Option<u32> {
        let first = u32::from(self.instructions);
        let position = match self.instruction_form {
            Instruction::Address => instruction.checked_sub(first),
            Instruction::Bytes => Some(instruction).filter(|at| at.cast_signed() >= 0),
            Instruction::Units => {
                let at = Some(instruction).filter(|at| at.cast_signed() >= 0);
                at.map(|at| at.saturating_mul(UNIT))
            }
        };
        match position {
            Some(position) => self.lines.at(position),
            // Not begun yet.
            None => Some(self.first_line),
        }
    }
}

/// The sum of bytes of a code object: FNV-1a over its words. The BPF side has the same.
pub fn checksum(bytes: &[u8; CHECKSUM_BYTES]) -> u32 {
    let mut sum = 0x811c_9dc5_u32;
    for word in bytes.chunks_exact(4) {
        let word = word.try_into().map_or(0, u32::from_le_bytes);
        sum = (sum ^ word).wrapping_mul(0x0100_0193);
    }
    // Low bits depend on low bits only.
    sum >> (u32::BITS - CHECKSUM_BITS)
}

fn sum_in(object: &[u8], offset: u16) -> u32 {
    let at = usize::from(offset);
    let bytes = object.get(at..at + CHECKSUM_BYTES);
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    checksum(bytes.unwrap_or(&[0; CHECKSUM_BYTES]))
}

/// A code object without its instructions.
fn object(memory: &impl Memory, runtime: &Runtime, address: u64) -> Result<Vec<u8>, Unread> {
    let layout = &runtime.layout;
    let mut object = vec![0; usize::from(layout.instructions).min(MAX_OBJECT)];
    fill(memory, address, &mut object)?;
    if word_in(&object, layout.object_type) != runtime.code_type {
        return Err(Unread::Malformed("code object"));
    }
    Ok(object)
}

/// The bytes of a table, of lines or of exceptions; none where there are more than `most`.
pub(crate) fn table(memory: &impl Memory, address: u64, most: usize) -> Result<Box<[u8]>, Unread> {
    let mut head = [0; BYTES as usize];
    fill(memory, address, &mut head)?;
    let size = word_in(&head, SIZE);
    let size = usize::try_from(size).ok().filter(|size| *size <= most);
    let mut bytes = vec![0; size.unwrap_or(0)];
    fill(memory, address.wrapping_add(BYTES), &mut bytes)?;
    Ok(bytes.into())
}
