//! Frames of a thread that does not run, read from outside.

use profile::model::StackEnd;
use python::{End, Memory, Runtime};

use crate::record::{PythonFrame, PythonStack};

/// `MAX_PYTHON_FRAMES` of the BPF side.
const MOST_FRAMES: usize = 128;

/// `None`: the thread has nothing to do with Python, as far as can be read.
pub(super) fn walk(
    memory: &impl Memory,
    runtime: &Runtime,
    thread_pointer: u64,
) -> Option<PythonStack> {
    let state = state(memory, runtime, thread_pointer)?;
    let stack = python::walk(memory, runtime, state, MOST_FRAMES);
    let frame = |frame: &python::Frame| PythonFrame {
        code: frame.code,
        instruction: frame.instruction(),
        checksum: frame.checksum(),
        is_entry: frame.is_entry(),
    };
    Some(PythonStack {
        frames: stack.frames.iter().map(frame).collect(),
        end: match stack.end {
            End::Root => StackEnd::Root,
            End::TooDeep => StackEnd::Depth,
            End::Unread(_) => StackEnd::Unreadable,
        },
    })
}

/// The interpreter's state of a thread, by the address that the thread's own data lies around.
pub(super) fn state(memory: &impl Memory, runtime: &Runtime, thread_pointer: u64) -> Option<u64> {
    let at = thread_pointer.checked_add(runtime.state_at().into())?;
    let mut state = [0; 8];
    let read = memory.read(at, &mut state).ok()?;
    let state = u64::from_ne_bytes(state);
    (thread_pointer != 0 && read == 8 && state != 0).then_some(state)
}
