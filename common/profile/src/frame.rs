//! One entry of a stack.

use std::sync::Arc;

/// What kind of code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// Of a file whose format does not say.
    Unknown,
    /// Code of a program or library on disk.
    User,
    /// The kernel, its modules and BPF programs.
    Kernel,
    /// Code made at run time, named by a perf map or not at all.
    Jit,
}

impl FrameKind {
    /// A stable lower-case word; `None` where the kind is not known.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::User => Some("user"),
            Self::Kernel => Some("kernel"),
            Self::Jit => Some("jit"),
        }
    }

    /// The kind of a word of [`Self::word`].
    pub fn of_word(word: &str) -> Self {
        let all = [Self::User, Self::Kernel, Self::Jit];
        let found = all.into_iter().find(|kind| kind.word() == Some(word));
        found.unwrap_or(Self::Unknown)
    }
}

/// Beginning of what a function without a name is called where one is known that it calls: `[calls:FUNCTION]`.
pub const CALLS: &str = "[calls:";

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

impl Frame {
    /// The file that it is in, without its directory; empty: none is known.
    pub fn file_name(&self) -> &str {
        let module = self.module.as_deref().unwrap_or_default();
        module.rsplit('/').next().unwrap_or_default()
    }

    /// The file that a function without a name is of; `None`: it has a name.
    pub fn unnamed_in(&self) -> Option<&str> {
        if self.kind != FrameKind::Jit
            && let Some((file, _)) = self.name.rsplit_once("+0x")
        {
            return Some(file);
        }
        let module = self
            .module
            .as_deref()
            .filter(|_| self.name.starts_with(CALLS))?;
        module.rsplit('/').next()
    }
}
