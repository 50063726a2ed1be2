//! Waits for a turn with the interpreter of Python.

use host::waits::{Reason, Wait};
use profile::frame::Frame;

/// The reason's word.
pub(crate) const GIL: &str = "gil";

/// Tells if a wait is one for the interpreter. `user`: root first.
pub(crate) fn is_for_interpreter(wait: Wait, user: &[Frame]) -> bool {
    wait.reason() == Reason::Futex && stacks::waits_for_python(user)
}
