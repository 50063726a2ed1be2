//! An interpreter in a process: its version, its layout, the key of its thread states.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::Arc;

use crate::binary::Binary;
use crate::debug;
use crate::layout::{Layout, NONE};
use crate::members;
use crate::memory::{Memory, Unread, fill, half_in, word, word_in};
use crate::refusal::Refusal;
use crate::version::Version;

/// Files of a process that are looked into.
const MAX_FILES: usize = 8;
/// Files of which those are the likeliest.
const MAX_NAMES: usize = 256;
/// Interpreters and thread states that are followed.
const MAX_INTERPRETERS: usize = 256;
const MAX_THREADS: usize = 8192;
/// glibc: where a thread's block has its own address, and where its values for the first keys begin, each a number and the value.
/// Architecture: x86-64.
const SELF: u32 = 0x10;
const VALUES: u32 = 0x310;
const VALUE: u32 = 16;
/// Keys whose values are in the thread's block.
const MAX_KEY: u32 = 32;

/// A part of a file that is mapped.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The file, as the kernel names it.
    pub path: PathBuf,
    /// The addresses.
    pub range: Range<u64>,
    /// Its beginning in the file, bytes.
    pub offset: u64,
}

/// A process, as far as it is looked at.
pub trait Process: Memory {
    /// Everything that is mapped of files.
    fn mappings(&self) -> Vec<Mapping>;

    /// Anything that [`Binary::read`] says of the file of a mapping; worth keeping, by file.
    fn binary(&self, mapping: &Mapping) -> Option<Arc<Binary>>;
}

/// An interpreter in a process.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Its version.
    pub version: Version,
    /// Its offsets.
    pub layout: Layout,
    /// Address of `_PyRuntime`.
    pub runtime_address: u64,
    /// Address of the type of code objects.
    pub code_type: u64,
    /// The key that `pthread_getspecific` gives a thread its state for, below 32.
    pub key: u32,
    /// Addresses of the interpreter's loop, the parts that the compiler moved away included.
    pub loops: Vec<Range<u64>>,
}

/// A thread that has a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Address of the state.
    pub state: u64,
    /// Address of its interpreter.
    pub interpreter: u64,
    /// The value of `pthread_self`: on glibc the address of the thread's block, which FS points to.
    pub block: u64,
    /// The thread's number in the innermost PID namespace, from 3.11 on.
    pub tid: Option<u64>,
}

impl Runtime {
    /// Finds the interpreter of a process, wherever it is: the program, a library, what another loader started. `None`: there is none.
    ///
    /// # Errors
    ///
    /// When there is one that is not known well enough; after some of these it is worth to look later ([`Refusal::may_pass`]).
    pub fn find(process: &impl Process) -> Result<Option<Self>, Refusal> {
        for mapping in candidates(process.mappings()) {
            let Some(binary) = process.binary(&mapping) else {
                continue;
            };
            let Some(bias) = binary.bias(mapping.range.start, mapping.offset) else {
                continue;
            };
            let version = binary.version.or_else(|| Version::of_name(name(&mapping)));
            let version = version.ok_or(Refusal::NoVersion)?;
            return Self::of(process, &binary, bias, version).map(Some);
        }
        Ok(None)
    }

    /// The interpreter of this file at this bias.
    fn of(
        memory: &impl Memory,
        binary: &Binary,
        bias: u64,
        version: Version,
    ) -> Result<Self, Refusal> {
        let known = Layout::of(version).ok_or(Refusal::UnknownVersion(version))?;
        let address = |address: Option<u64>, name| {
            let address = address.ok_or(Refusal::NoSymbol(name))?;
            Ok(address.wrapping_add(bias))
        };
        let runtime_address = binary.runtime.wrapping_add(bias);
        let code_type = address(binary.code_type, "PyCode_Type")?;
        let frame_type = address(binary.frame_type, "PyFrame_Type")?;
        let layout = debug::read(memory, runtime_address, version, known)?;
        members::check(memory, (code_type, frame_type), version, &layout)?;
        let shifted =
            |range: &Range<u64>| range.start.wrapping_add(bias)..range.end.wrapping_add(bias);
        let runtime = Self {
            version,
            layout,
            runtime_address,
            code_type,
            key: key(memory, runtime_address, &layout)?,
            loops: binary.loops.iter().map(shifted).collect(),
        };
        let mut has_bound = false;
        let has_threads = runtime.each_thread(memory, |thread| {
            has_bound = runtime.is_bound(memory, &thread);
            if has_bound {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match (has_threads, has_bound) {
            (false, _) => return Err(Refusal::NotRunning),
            (true, false) => return Err(Refusal::NoThread),
            (true, true) => {}
        }
        Ok(runtime)
    }

    /// The threads that have a state, as far as the lists can be followed.
    pub fn threads(&self, memory: &impl Memory) -> Vec<Thread> {
        let mut threads = Vec::new();
        self.each_thread(memory, |thread| {
            threads.push(thread);
            ControlFlow::Continue(())
        });
        threads
    }

    /// Bytes from a thread's block, which FS points to, to the address of its state.
    pub fn state_at(&self) -> u32 {
        VALUES + VALUE * self.key + VALUE / 2
    }

    /// Addresses of the interpreters, as far as their list can be followed.
    pub(crate) fn interpreters(&self, memory: &impl Memory) -> impl Iterator<Item = u64> {
        let next = |at: u64, offset: u16| {
            let next = word(memory, at.wrapping_add(offset.into())).unwrap_or(0);
            (next != 0).then_some(next)
        };
        let first = next(self.runtime_address, self.layout.interpreters);
        let rest = move |before: &u64| next(*before, self.layout.next_interpreter);
        std::iter::successors(first, rest).take(MAX_INTERPRETERS)
    }

    /// Calls `each` with every thread until it says to stop; whether there was one.
    fn each_thread(
        &self,
        memory: &impl Memory,
        mut each: impl FnMut(Thread) -> ControlFlow<()>,
    ) -> bool {
        let layout = &self.layout;
        let next = |at: u64, offset: u16| word(memory, at.wrapping_add(offset.into())).unwrap_or(0);
        let mut bytes = vec![0; layout.thread_span()];
        let mut left = MAX_THREADS;
        for interpreter in self.interpreters(memory) {
            let mut state = next(interpreter, layout.threads);
            while state != 0 && left > 0 && fill(memory, state, &mut bytes).is_ok() {
                left -= 1;
                let thread = Thread {
                    state,
                    interpreter,
                    block: word_in(&bytes, layout.thread_id),
                    tid: (layout.native_thread_id != NONE)
                        .then(|| word_in(&bytes, layout.native_thread_id)),
                };
                if each(thread).is_break() {
                    return true;
                }
                state = word_in(&bytes, layout.next_thread);
            }
        }
        left < MAX_THREADS
    }

    /// Tells if a thread's block holds its state for the key: the way that the BPF side finds it.
    pub fn is_bound(&self, memory: &impl Memory, thread: &Thread) -> bool {
        let at = |offset: u32| word(memory, thread.block.wrapping_add(offset.into())).ok();
        at(SELF) == Some(thread.block) && at(self.state_at()) == Some(thread.state)
    }
}

/// The key of thread states.
fn key(memory: &impl Memory, runtime: u64, layout: &Layout) -> Result<u32, Refusal> {
    let mut bytes = [0; 8];
    let at = runtime.wrapping_add(layout.key.into());
    let unread = |error: Unread| Refusal::Unread("the key of thread states", error);
    fill(memory, at, &mut bytes).map_err(unread)?;
    let (is_valid, key) = (half_in(&bytes, 0), half_in(&bytes, 4));
    match (is_valid, key) {
        (1, key) if key < MAX_KEY => Ok(key),
        (1, key) => Err(Refusal::Key(key)),
        _ => Err(Refusal::NotRunning),
    }
}

fn name(mapping: &Mapping) -> &[u8] {
    let name = mapping.path.file_name().unwrap_or_default();
    name.as_encoded_bytes()
}

/// One mapping of each file that may hold an interpreter: those that are called so, then programs that may have it built in.
fn candidates(mappings: Vec<Mapping>) -> Vec<Mapping> {
    // Not `_json.cpython-311-x86_64-linux-gnu.so`.
    let is_called_so = |mapping: &Mapping| {
        let name = name(mapping);
        name.starts_with(b"python") || name.starts_with(b"libpython")
    };
    let is_library = |mapping: &Mapping| name(mapping).windows(3).any(|part| part == b".so");
    let mut found: Vec<Mapping> = Vec::new();
    for mapping in mappings {
        let is_candidate = is_called_so(&mapping) || !is_library(&mapping);
        let is_new = found.iter().all(|other| other.path != mapping.path);
        if is_candidate && is_new && found.len() < MAX_NAMES {
            found.push(mapping);
        }
    }
    found.sort_by_key(|mapping| !is_called_so(mapping));
    found.truncate(MAX_FILES);
    found
}
