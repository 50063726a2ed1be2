//! Locks of Python: the interpreter's own, and those of its programs, by the functions of Python that wait.

use profile::frame::{Frame, FrameKind};
use stacks::PYTHON_WAITS;

use crate::lockstat::futex::{BY_NAME, Class, Meaning, Role, Verdict};

/// Confidence that a futex within the interpreter's lock is that lock, per cent.
const BY_ADDRESS: u8 = 99;
/// Shown where a program waits for a `threading.Lock` or its like.
const LOCK: &str = "python-lock";
/// Those of 3.13 and later, of which each waiter has a futex of its own.
const PARKING: [&str; 2] = ["PyParkingLot_Park", "PySemaphore_Wait"];
/// Files of the standard library in which Python's own locks are made of locks.
const LIBRARY: [&str; 2] = ["threading.py", "queue.py"];
/// Frames from the leaf on that are looked at.
const MAX_FRAMES: usize = 32;

/// The lock that all threads of an interpreter take turns with, by its place.
pub(crate) fn gil() -> Verdict {
    verdict(Class::Gil, Class::Gil.word(), BY_ADDRESS, false)
}

/// Meaning of a wait for a lock of a program in Python; `frames`: root first. `None`: it is none, or no function of Python is known.
pub(crate) fn judge(frames: &[Frame]) -> Option<Verdict> {
    let native = native(frames);
    let is_any = |of: &[&str]| {
        let begins = |name: &str| of.iter().any(|begin| name.starts_with(begin));
        native.clone().any(begins)
    };
    if !is_any(&PYTHON_WAITS) {
        return None;
    }
    let mut functions = functions(frames);
    // One without a file could not be read: it may be anything.
    let innermost = functions.next().filter(|frame| frame.module.is_some())?;
    let outer = functions.next();
    // Its module is often stripped. Where it is built into an interpreter that is, it cannot be told.
    let is_queue = native.clone().any(|name| name.contains("SimpleQueue"))
        || inside(frames).any(|frame| frame.file_name().starts_with("_queue."));
    let class = match (innermost.file_name(), last(innermost)) {
        _ if is_queue => Class::Cond,
        ("threading.py", "_wait") => Class::Barrier,
        ("threading.py", "wait" | "wait_for") => {
            match outer.map(|outer| (outer.file_name(), last(outer))) {
                Some(("threading.py", "acquire")) => Class::Sem,
                Some(("threading.py", "_wait" | "_enter")) => Class::Barrier,
                _ => Class::Cond,
            }
        }
        ("threading.py", "join" | "_wait_for_tstate_lock" | "_shutdown") => Class::Join,
        // A worker of a pool takes work out of a queue that is made in C.
        ("thread.py", "_worker") => Class::Cond,
        _ => Class::Named,
    };
    let is_own = class != Class::Named || is_any(&PARKING);
    let word = if class == Class::Named {
        LOCK
    } else {
        class.word()
    };
    Some(verdict(class, word, BY_NAME, is_own))
}

fn verdict(class: Class, word: &'static str, confidence: u8, is_own: bool) -> Verdict {
    let role = match class {
        Class::Gil | Class::Named | Class::Barrier => Role::Trouble,
        _ => Role::Unsaid,
    };
    Verdict {
        meaning: Meaning {
            class,
            word,
            role,
            is_own,
            behind: 0,
        },
        confidence,
    }
}

/// The code that waits for a lock: the innermost function of Python outside of the locks' own, with its file and, where `with_line`, the line
/// that it waits in. `None`: no function of Python is known.
pub(crate) fn caller(frames: &[Frame], with_line: bool) -> Option<String> {
    let is_own = |frame: &&Frame| LIBRARY.contains(&frame.file_name());
    let outside = functions(frames).find(|frame| !is_own(frame));
    let frame = outside.or_else(|| functions(frames).next())?;
    let place = place(frame).filter(|_| with_line);
    let name = &frame.name;
    Some(match (place, frame.file_name()) {
        (Some(place), _) => format!("{name} ({place})"),
        (None, "") => name.to_string(),
        (None, file) => format!("{name} ({file})"),
    })
}

/// `busy.py:5`: the line that a function of Python is in, and its file without the directory. `None`: nobody knows, or it is none.
pub(crate) fn place(frame: &Frame) -> Option<String> {
    let (_, line) = frame.line.as_ref()?;
    let of_python = frame.kind == FrameKind::Jit && !frame.file_name().is_empty();
    of_python.then(|| format!("{}:{line}", frame.file_name()))
}

/// Functions of Python, innermost first.
fn functions(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    let leaf_first = frames.iter().rev();
    leaf_first.filter(|frame| frame.kind == FrameKind::Jit)
}

/// Names of the functions inside of all those of Python, leaf first.
fn native(frames: &[Frame]) -> impl Iterator<Item = &str> + Clone {
    inside(frames).map(|frame| frame.name.trim_start_matches('_'))
}

/// Functions inside of all those of Python, leaf first.
fn inside(frames: &[Frame]) -> impl Iterator<Item = &Frame> + Clone {
    let leaf_first = frames.iter().rev().take(MAX_FRAMES);
    leaf_first.take_while(|frame| frame.kind != FrameKind::Jit)
}

/// The last part of a qualified name, which versions before 3.11 have alone.
fn last(frame: &Frame) -> &str {
    frame.name.rsplit('.').next().unwrap_or_default()
}

#[cfg(test)]
#[path = "python_tests.rs"]
mod tests;
