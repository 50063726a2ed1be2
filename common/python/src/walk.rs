//! A thread's frames: the same walk as the BPF side's, for threads that do not move, and to hold that one to.

use std::ops::ControlFlow;

use crate::code::Code;
use crate::layout::{Entries, Instruction, Layout, NONE};
use crate::memory::{Memory, Unread, fill, half_in, word, word_in};
use crate::runtime::Runtime;

/// The bit that says so in [`Frame::word`].
const ENTRY: u64 = 1 << 32;
/// The checksum's first bit in it.
const CHECKSUM: u32 = 40;
/// Bytes of a frame that are read at most.
const MAX_FRAME: usize = 256;

/// A Python frame, in the words of a stack record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address of the code object.
    pub code: u64,
    /// The place in it (bits 0 to 31), whether C code called it (bit 32), the checksum of the code object (bits 40 to 63).
    pub word: u64,
}

impl Frame {
    /// The place in the code: bytes from the code object's beginning; before 3.11 the frame's `f_lasti`.
    pub fn instruction(self) -> u32 {
        self.word as u32
    }

    /// Tells if C code called it: frames outwards of it belong to the next native frame of the interpreter's loop.
    pub fn is_entry(self) -> bool {
        self.word & ENTRY != 0
    }

    /// The checksum of the code object when the frame was seen.
    pub fn checksum(self) -> u32 {
        (self.word >> CHECKSUM) as u32
    }
}

/// Ends of a walk.
#[derive(Debug)]
pub enum End {
    /// All frames were seen.
    Root,
    /// There are more.
    TooDeep,
    /// The rest cannot be read, or makes no sense.
    Unread(Unread),
}

/// A thread's Python frames.
#[derive(Debug)]
pub struct Stack {
    /// The innermost one first.
    pub frames: Vec<Frame>,
    /// Its end.
    pub end: End,
}

/// The frames of the thread with this thread state, at most `most`.
pub fn walk(memory: &impl Memory, runtime: &Runtime, thread_state: u64, most: usize) -> Stack {
    let mut frames = Vec::new();
    let end = match follow(memory, runtime, thread_state, most, &mut frames) {
        Ok(true) => End::Root,
        Ok(false) => End::TooDeep,
        Err(error) => End::Unread(error),
    };
    Stack { frames, end }
}

/// Tells if the root was reached.
fn follow(
    memory: &impl Memory,
    runtime: &Runtime,
    thread_state: u64,
    most: usize,
    frames: &mut Vec<Frame>,
) -> Result<bool, Unread> {
    let layout = &runtime.layout;
    // Between two functions' frames there is at most one that is none's.
    each_frame(memory, runtime, thread_state, 2 * most + 1, |_, bytes| {
        let is_marked = layout.is_marked(bytes);
        if layout.entries == Entries::Between && is_marked {
            if let Some(last) = frames.last_mut() {
                last.word |= ENTRY;
            }
            return Ok(ControlFlow::Continue(()));
        }
        if frames.len() == most {
            return Ok(ControlFlow::Break(()));
        }
        let code = word_in(bytes, layout.code) & !u64::from(layout.code_tag);
        let instruction = place(layout, bytes, code)?;
        let is_entry = match layout.entries {
            Entries::All => true,
            Entries::Marked => is_marked,
            Entries::Between => false,
        };
        let checksum = Code::checksum(memory, runtime, code)?;
        let entry = if is_entry { ENTRY } else { 0 };
        let word = u64::from(instruction) | entry | u64::from(checksum) << CHECKSUM;
        frames.push(Frame { code, word });
        Ok(ControlFlow::Continue(()))
    })
}

/// Calls `each` with the address and the fields of every frame of a thread, the innermost one first, those that are no function's among
/// them, until it says to stop, or there were `most`; tells if the root was reached.
pub(crate) fn each_frame(
    memory: &impl Memory,
    runtime: &Runtime,
    thread_state: u64,
    most: usize,
    mut each: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, Unread>,
) -> Result<bool, Unread> {
    let layout = &runtime.layout;
    let mut at = word(memory, thread_state.wrapping_add(layout.frame.into()))?;
    if at != 0 && layout.frame_in_holder != NONE {
        at = word(memory, at.wrapping_add(layout.frame_in_holder.into()))?;
    }
    let mut bytes = vec![0; layout.frame_span().min(MAX_FRAME)];
    for _ in 0..most {
        if at == 0 {
            return Ok(true);
        }
        fill(memory, at, &mut bytes)?;
        if each(at, &bytes)?.is_break() {
            return Ok(false);
        }
        at = word_in(&bytes, layout.previous);
    }
    Ok(false)
}

/// The place in its code that a frame is at, as [`Frame::instruction`] has it.
pub(crate) fn place(layout: &Layout, frame: &[u8], code: u64) -> Result<u32, Unread> {
    match layout.instruction_form {
        Instruction::Address => {
            let distance = word_in(frame, layout.instruction).wrapping_sub(code);
            u32::try_from(distance).map_err(|_| Unread::Malformed("frame"))
        }
        Instruction::Bytes | Instruction::Units => Ok(half_in(frame, layout.instruction)),
    }
}
