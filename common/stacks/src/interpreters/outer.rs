//! Frames outside of those that the state of a thread in Python tells of.
//!
//! A thread in which one interpreter calls another has a state for each: the inner one's is found, from 3.12 on. A greenlet has a stack of
//! its own, as long as it runs: it begins in the middle of the thread's stack, where whoever started it stood.

use symbols::{Location, Symbolizer};

/// Frames behind those that the state tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outer {
    /// They are of the interpreter that called this one.
    Interpreter,
    /// They were of whoever started the greenlet.
    Starter,
}

/// Frames in a row by which a greenlet begins, at least.
const FEW: usize = 2;

/// Number of frames, leaf first, that the state may tell of, and what is behind them; `None`: nothing is.
pub(super) fn outer(locations: &[Location], symbolizer: &Symbolizer) -> Option<(usize, Outer)> {
    let name = |location: &Location| match location {
        Location::Module { module, .. } => {
            let path = symbolizer.module_path(*module);
            path.rsplit('/').next().unwrap_or_default()
        }
        _ => "",
    };
    outer_of(locations.iter().map(name))
}

/// The same by names of files.
fn outer_of<'a>(names: impl Iterator<Item = &'a str>) -> Option<(usize, Outer)> {
    let mut in_greenlet = 0;
    // One more, for a stack that could not be walked any further.
    for (at, name) in names.chain([""]).enumerate() {
        let is_in = |module: &str| {
            let rest = name.strip_prefix(module);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        // The module's name has changed since.
        if is_in("_xxsubinterpreters.cpython-312-x86_64-linux-gnu") || is_in("_interpreters") {
            return Some((at, Outer::Interpreter));
        }
        if is_in("_greenlet") {
            in_greenlet += 1;
        } else if in_greenlet >= FEW {
            return Some((at, Outer::Starter));
        } else {
            in_greenlet = 0;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_python_tell_where_another_stack_begins() {
        let outer = |names: &str| {
            let name = |c| match c {
                'i' => "_interpreters.cpython-314-x86_64-linux-gnu.so",
                'x' => "_xxsubinterpreters.cpython-311-x86_64-linux-gnu.so",
                'z' => "_xxsubinterpreters.cpython-312-x86_64-linux-gnu.so",
                'g' => "_greenlet.cpython-311-x86_64-linux-gnu.so",
                'o' => "_greenlets.so",
                _ => "python3.11",
            };
            outer_of(names.chars().map(name))
        };
        for (names, found) in [
            ("pppp", None),
            ("ppipp", Some((2, Outer::Interpreter))),
            ("pzz", Some((1, Outer::Interpreter))),
            // The outer one's functions are found.
            ("pxx", None),
            ("ppgggpp", Some((5, Outer::Starter))),
            // It asks about itself.
            ("pgppg", None),
            // No code has called it any more.
            ("ppgg", Some((4, Outer::Starter))),
            ("pgppggp", Some((6, Outer::Starter))),
            ("pooop", None),
        ] {
            assert_eq!(outer(names), found, "{names}");
        }
    }
}
