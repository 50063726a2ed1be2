//! Names of code objects, each read once while its process has it.

use std::collections::HashMap;
use std::sync::Arc;

use profile::frame::{Frame, FrameKind};
use python::Code;

use crate::record::PythonFrame;

/// Code objects whose names are kept; a large program has 30,000.
const MOST_CODES: usize = 1 << 16;

/// A reason why a function has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nameless {
    /// Other code lies there now.
    Replaced,
    /// The process is gone, or its memory cannot be read.
    Unread,
    /// There are too many of them.
    Full,
}

impl Nameless {
    fn name(self) -> &'static str {
        match self {
            Self::Replaced => "[Python: code replaced]",
            Self::Unread => "[Python: code not read]",
            Self::Full => "[Python: too many functions]",
        }
    }
}

/// Functions that got no name.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    pub(super) replaced: u64,
    pub(super) unread: u64,
    pub(super) full: u64,
}

/// A process, told from others that had its ID, and a code object with its checksum.
type Key = (u32, u64, u64, u32);

struct Function {
    name: Arc<str>,
    file: Arc<str>,
    code: Code,
}

/// Everything that has been read.
#[derive(Default)]
pub(super) struct Codes {
    known: HashMap<Key, Result<Function, Nameless>>,
    pub(super) unnamed: Unnamed,
}

impl Codes {
    /// The frame of a function, none if it is the interpreter's own, in the address space `space` of a process; `read` reads its code object.
    pub(super) fn frame(
        &mut self,
        (tgid, space): (u32, u64),
        frame: &PythonFrame,
        read: impl FnOnce() -> Option<Code>,
    ) -> Option<Frame> {
        let key = (tgid, space, frame.code, frame.checksum);
        let is_full = self.known.len() >= MOST_CODES;
        let function = match self.known.get(&key) {
            Some(function) => function,
            None if is_full => &Err(Nameless::Full),
            None => self
                .known
                .entry(key)
                .or_insert(function(read(), frame.checksum)),
        };
        match function {
            Ok(function) if function.code.is_internal => None,
            Ok(function) => Some(Frame {
                line: function
                    .code
                    .line(frame.instruction)
                    .map(|line| (Arc::clone(&function.file), line)),
                name: Arc::clone(&function.name),
                module: Some(Arc::clone(&function.file)),
                ..nameless("")
            }),
            Err(why) => {
                *match why {
                    Nameless::Replaced => &mut self.unnamed.replaced,
                    Nameless::Unread => &mut self.unnamed.unread,
                    Nameless::Full => &mut self.unnamed.full,
                } += 1;
                Some(nameless(why.name()))
            }
        }
    }
}

fn function(read: Option<Code>, checksum: u32) -> Result<Function, Nameless> {
    let mut code = read.ok_or(Nameless::Unread)?;
    if code.checksum != checksum {
        return Err(Nameless::Replaced);
    }
    let name = match python::module(&code.file) {
        Some(module) => format!("{module}.{}", code.name),
        None => std::mem::take(&mut code.name),
    };
    Ok(Function {
        name: name.into(),
        file: std::mem::take(&mut code.file).into(),
        code,
    })
}

/// A frame of Python without its function's name.
pub(super) fn nameless(text: &str) -> Frame {
    Frame {
        name: text.into(),
        kind: FrameKind::Jit,
        inlined: false,
        module: None,
        address: 0,
        line: None,
    }
}
