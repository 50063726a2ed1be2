//! Stacks of threads that wait for a turn with the interpreter of Python: its threads take turns (GIL).
//!
//! The kernel sees a futex, and the C library a condition variable that is waited on for 5 ms at a time: the functions tell it from waits for
//! work. The one that waits has a name in few builds, but nothing else in the interpreter uses a condition variable where there are
//! semaphores: locks of programs do not, and pools of threads are in libraries of their own.

use std::path::Path;

use profile::frame::{Frame, FrameKind};

/// Functions that take the interpreter, without leading underscores and what a compiler puts behind.
const TAKING: [&str; 6] = [
    "take_gil",
    "PyEval_RestoreThread",
    "PyEval_AcquireThread",
    "PyEval_AcquireLock",
    "PyGILState_Ensure",
    "PyThreadState_Attach",
];
/// Beginnings of functions that wait for what a program in Python calls a lock, without leading underscores.
pub const PYTHON_WAITS: [&str; 5] = [
    "PyThread_acquire_lock",
    "PyMutex_Lock",
    "PyParkingLot_Park",
    "PySemaphore_Wait",
    "PyEvent_Wait",
];
/// Beginnings of the C library's waits on a condition variable: for a turn, and until another thread has taken it.
const CONDITION: [&str; 3] = [
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_cond_wait",
];
/// Ends of interpreters' names behind the version: for debugging, or as Debian calls that, and without a global lock.
const BUILDS: [&str; 5] = ["", "d", "-dbg", "t", "td"];
/// Frames from the leaf on that are looked at.
const MAX_FRAMES: usize = 16;

/// Tells if a thread that waits for a futex waits for Python's interpreter. `user`: root first.
pub fn waits_for_python(user: &[Frame]) -> bool {
    let mut on_condition = false;
    for frame in user.iter().rev().take(MAX_FRAMES) {
        let name = frame.name.trim_start_matches('_');
        let begins = |of: &[&str]| of.iter().any(|begin| name.starts_with(begin));
        if TAKING.contains(&name.split('.').next().unwrap_or_default()) {
            return true;
        }
        if frame.kind == FrameKind::Jit || begins(&PYTHON_WAITS) {
            return false;
        }
        if begins(&CONDITION) {
            on_condition = true;
        } else if on_condition {
            return is_interpreter(frame);
        }
    }
    false
}

/// `/usr/bin/python3.11`, `libpython3.11.so.1.0`, and no module for one.
fn is_interpreter(frame: &Frame) -> bool {
    let path = frame.module.as_deref().map(Path::new);
    let name = path
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    let Some(name) = name else { return false };
    match (name.strip_prefix("libpython"), name.strip_prefix("python")) {
        (Some(version), _) => version.starts_with(|first: char| first.is_ascii_digit()),
        (_, Some(version)) => {
            let is_of_version = |one: char| one == '.' || one.is_ascii_digit();
            BUILDS.contains(&version.trim_start_matches(is_of_version))
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
