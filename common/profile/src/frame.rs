//! One entry of a stack.

use std::sync::Arc;

/// What kind of code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Code of a program or library on disk.
    User,
    /// The kernel, its modules and BPF programs.
    Kernel,
    /// Code made at run time, named by a perf map or not at all.
    Jit,
}

/// One function in a stack, named as well as it could be.
///
/// Names are kept as they came (a process chooses its own): every writer escapes them for its format.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function name, demangled; `module+0xoffset` when no symbol covers the address.
    pub name: Arc<str>,
    /// Whose code it is.
    pub kind: FrameKind,
    /// Whether the compiler inlined this function into the frame rootward of it.
    pub inlined: bool,
    /// Path of the ELF file, `[kernel]`, a kernel module's name or `[bpf]`; `None` for unknown memory.
    pub module: Option<Arc<str>>,
    /// ELF virtual address in `module`, or the raw address where there is no module.
    pub address: u64,
    /// Source file and line, where debug information gives them.
    pub line: Option<(Arc<str>, u32)>,
}
