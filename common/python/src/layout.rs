//! Places of fields, by version: plain numbers, for the BPF side and for this one.
//!
//! Those of 3.13 and later are told by the interpreter itself (`debug`); those before are fixed, and held to what the interpreter
//! tells of its code objects (`members`).

use crate::version::Version;

/// Offset of a field that the version does not have.
pub const NONE: u16 = u16::MAX;

/// Places in the global lock, in every version: the thread state that has or had it, and whether it has it.
pub(crate) const HOLDER: u16 = 8;
pub(crate) const IS_LOCKED: u16 = 16;

/// Forms of the place in the code that a frame is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Instruction {
    /// The address of an instruction.
    Address = 0,
    /// A number of four bytes: bytes from the first instruction.
    Bytes = 1,
    /// A number of four bytes: instructions of two bytes each from the first one.
    Units = 2,
}

/// Marks of entry frames: those that C code called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Entries {
    /// Every frame is one.
    All = 0,
    /// The byte [`Layout::mark`] of an entry frame is [`Layout::marked`].
    Marked = 1,
    /// Behind an entry frame stands one that is no function's, whose byte [`Layout::mark`] is [`Layout::marked`].
    Between = 2,
}

/// Forms of the table that has the lines of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Positions {
    /// `co_lnotab`, before 3.10.
    Steps = 0,
    /// 3.10's `co_linetable`.
    Ranges = 1,
    /// `co_linetable` from 3.11 on.
    Locations = 2,
}

/// Offsets, in bytes, within the structures of one build of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Thread state: address of the innermost frame, or of what holds that.
    pub frame: u16,
    /// The thing that a thread state holds the address of: that of the innermost frame. [`NONE`]: it is the frame.
    pub frame_in_holder: u16,
    /// Thread state: what `pthread_self` said, eight bytes.
    pub thread_id: u16,
    /// Thread state: the thread's number in the innermost PID namespace, eight bytes. [`NONE`] before 3.11.
    pub native_thread_id: u16,
    /// Thread state: address of the next one of its interpreter.
    pub next_thread: u16,

    /// Frame: address of the code object.
    pub code: u16,
    /// Bits of that address that do not belong to it.
    pub code_tag: u16,
    /// Frame: address of the frame that called it.
    pub previous: u16,
    /// Frame: the instruction that it is at.
    pub instruction: u16,
    /// Form of that.
    pub instruction_form: Instruction,
    /// The sign of entry frames.
    pub entries: Entries,
    /// Frame: the byte that tells.
    pub mark: u16,
    /// Value of that byte.
    pub marked: u8,

    /// Code object: the first of the [`crate::CHECKSUM_BYTES`] that are summed. From 3.12 on its version is among them, which no other
    /// code object of the interpreter ever has; before, code of the same shape has the same sum.
    pub checksum: u16,
    /// Code object: the first line, four bytes.
    pub first_line: u16,
    /// Code object: address of the file's name.
    pub file: u16,
    /// Code object: address of the name, the qualified one if the version has it.
    pub name: u16,
    /// Code object: address of the line table.
    pub lines: u16,
    /// Form of that table.
    pub positions: Positions,
    /// Code object: the first instruction, and where the object ends without its instructions. Before 3.11 those are elsewhere.
    pub instructions: u16,

    /// Any object: address of its type.
    pub object_type: u16,
    /// A string of ASCII characters: the first one. The size of what is before is that of the interpreter's `PyASCIIObject`.
    pub ascii: u16,
    /// Any other string: the first character.
    pub wide: u16,

    /// Runtime: address of the newest interpreter.
    pub interpreters: u16,
    /// Interpreter: address of the next one.
    pub next_interpreter: u16,
    /// Interpreter: address of the newest thread state.
    pub threads: u16,
    /// Runtime: whether the key of thread states is valid (four bytes), and the key.
    pub key: u16,
    /// Runtime, or interpreter: the lock that all threads take turns with, or its address.
    pub lock: u16,
    /// Tells if the runtime has the lock itself (before 3.12), else the interpreter has its address.
    pub lock_is_in_runtime: bool,
    /// Bytes of a frame object without its variables, as its type has it. [`NONE`]: nobody knows.
    pub frame_bytes: u16,
}

/// The end of lists that are compared: the last two numbers of a string's head.
const HEAD: u16 = 16 + 8 + 8 + 8;

impl Layout {
    /// The numbers of a version, as long as the interpreter says no others. `None`: unknown.
    pub fn of(version: Version) -> Option<Self> {
        Some(match version.minor {
            8 => Self {
                interpreters: 32,
                key: 1392,
                lock: 1152,
                ..BEFORE_3_11
            },
            9 => BEFORE_3_11,
            10 => Self {
                instruction: 96,
                instruction_form: Instruction::Units,
                positions: Positions::Ranges,
                frame_bytes: 360,
                ..BEFORE_3_11
            },
            11 => V3_11,
            12 => V3_12,
            13 => V3_13,
            14 => V3_14,
            _ => return None,
        })
    }
}

/// 3.9's.
const BEFORE_3_11: Layout = Layout {
    frame: 24,
    frame_in_holder: NONE,
    thread_id: 176,
    native_thread_id: NONE,
    next_thread: 8,
    code: 32,
    code_tag: 0,
    previous: 24,
    instruction: 104,
    instruction_form: Instruction::Bytes,
    entries: Entries::All,
    mark: NONE,
    marked: 0,
    checksum: 16,
    first_line: 40,
    file: 104,
    name: 112,
    lines: 120,
    positions: Positions::Steps,
    instructions: 176,
    object_type: 8,
    ascii: HEAD + 8,
    wide: HEAD + 32,
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    key: 584,
    lock: 352,
    lock_is_in_runtime: true,
    frame_bytes: 368,
};

const V3_11: Layout = Layout {
    frame: 56,
    frame_in_holder: 8,
    thread_id: 152,
    native_thread_id: 160,
    code: 32,
    previous: 48,
    instruction: 56,
    instruction_form: Instruction::Address,
    entries: Entries::Marked,
    mark: 68,
    marked: 1,
    checksum: 56,
    first_line: 72,
    file: 112,
    name: 128,
    lines: 136,
    positions: Positions::Locations,
    instructions: 184,
    interpreters: 40,
    threads: 16,
    key: 592,
    lock: 360,
    frame_bytes: 120,
    ..BEFORE_3_11
};

const V3_12: Layout = Layout {
    frame_in_holder: 0,
    thread_id: 136,
    native_thread_id: 144,
    code: 0,
    previous: 8,
    entries: Entries::Between,
    mark: 70,
    marked: 3,
    checksum: 68,
    first_line: 68,
    instructions: 192,
    ascii: HEAD,
    wide: HEAD + 16,
    threads: 72,
    key: 1544,
    lock: 384,
    lock_is_in_runtime: false,
    ..V3_11
};

const V3_13: Layout = Layout {
    frame: 72,
    frame_in_holder: NONE,
    thread_id: 152,
    native_thread_id: 160,
    instructions: 200,
    interpreters: 632,
    next_interpreter: 7264,
    threads: 7344,
    key: 2160,
    lock: 16,
    frame_bytes: NONE,
    ..V3_12
};

const V3_14: Layout = Layout {
    code_tag: 3,
    mark: 74,
    instructions: 208,
    interpreters: 808,
    next_interpreter: 7272,
    key: 2336,
    ..V3_13
};

impl Layout {
    /// Tells if a frame has the sign of [`Layout::entries`].
    pub(crate) fn is_marked(&self, frame: &[u8]) -> bool {
        frame.get(usize::from(self.mark)) == Some(&self.marked)
    }

    /// Bytes of a frame up to the last field that is looked at.
    pub fn frame_span(&self) -> usize {
        let mark = if self.mark == NONE { 0 } else { self.mark };
        let words = [self.code, self.previous, self.instruction];
        let words = words.map(usize::from).into_iter().fold(0, usize::max) + 8;
        words.max(usize::from(mark) + 1)
    }

    /// Bytes of a thread state up to the last field that is looked at, the address of its frame left out.
    pub(crate) fn thread_span(&self) -> usize {
        let native = if self.native_thread_id == NONE {
            0
        } else {
            self.native_thread_id
        };
        let fields = [self.thread_id, native, self.next_thread];
        fields.map(usize::from).into_iter().fold(0, usize::max) + 8
    }

    /// Bytes of a code object up to its instructions, or up to the last field that is looked at if that is behind.
    pub(crate) fn code_span(&self) -> usize {
        let fields = [self.file, self.name, self.lines, self.first_line];
        let last = fields.map(usize::from).into_iter().fold(0, usize::max) + 8;
        last.max(self.instructions.into())
    }
}
