//! Puts Python functions where the interpreter's loop stands in a stack.
//!
//! One call of the loop runs a function and those that it calls, as long as all of them are Python; where C code calls Python
//! again, another call of the loop begins. So each call of the loop stands for a group of functions, whose outermost, the entry, was
//! called by C.

use std::ops::Range;

/// Both halves of a stack, each leaf first.
pub(super) struct Halves<'a> {
    /// Native frames: whether they are calls of the loop.
    pub(super) is_loop: &'a [bool],
    /// They reach the thread's first function.
    pub(super) is_native_complete: bool,
    /// Number of native frames, from the leaf on, in the interpreter that the functions are of: it may be another one's callee.
    pub(super) own: usize,
    /// Functions: whether they are entries.
    pub(super) is_entry: &'a [bool],
    /// They reach the thread's first function in Python.
    pub(super) is_python_complete: bool,
    /// Calls of the loop stay, below their functions.
    pub(super) keeps_loops: bool,
}

/// Neighbours in the whole stack, by their indices in their half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Native(Range<usize>),
    Python(Range<usize>),
}

/// The whole stack, leaf first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spliced {
    pub(super) pieces: Vec<Piece>,
    /// Every group has found its call of the loop, and the other way round, as far as both halves reach.
    pub(super) is_matched: bool,
}

/// Joins the halves.
///
/// Both are matched from the root where they are complete: a thread that is just entering the loop has a call of it without a
/// function. Else they are matched from the leaf.
pub(super) fn splice(halves: &Halves<'_>) -> Spliced {
    let mut groups = groups(halves.is_entry).into_iter();
    let (own, of_others) = halves.is_loop.split_at(halves.own);
    let loops = calls(own);
    let is_complete = halves.is_native_complete && halves.is_python_complete;
    let entering = match is_complete {
        true => loops.saturating_sub(groups.len()),
        false => 0,
    };
    let is_alone = !of_others.contains(&true);
    let mut is_matched =
        is_alone && entering <= 1 && (groups.len() <= loops || !halves.is_native_complete);
    let mut pieces = Vec::new();
    let (mut from, mut met) = (0, 0);
    for (at, is_loop) in own.iter().enumerate() {
        if !is_loop {
            continue;
        }
        met += 1;
        if met <= entering {
            continue;
        }
        let Some(group) = groups.next() else {
            is_matched &= !halves.is_python_complete;
            break;
        };
        push(&mut pieces, Piece::Native(from..at));
        push(&mut pieces, Piece::Python(group));
        from = if halves.keeps_loops { at } else { at + 1 };
    }
    push(&mut pieces, Piece::Native(from..own.len()));
    for group in groups {
        push(&mut pieces, Piece::Python(group));
    }
    push(&mut pieces, Piece::Native(own.len()..halves.is_loop.len()));
    Spliced { pieces, is_matched }
}

/// Looks whether these native frames, from the leaf on, have a call of the loop for every group of functions.
pub(super) fn are_within(is_loop: &[bool], is_entry: &[bool]) -> bool {
    calls(is_loop) >= groups(is_entry).len()
}

fn calls(is_loop: &[bool]) -> usize {
    is_loop.iter().filter(|is_loop| **is_loop).count()
}

fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    let (Piece::Native(range) | Piece::Python(range)) = &piece;
    if !range.is_empty() {
        pieces.push(piece);
    }
}

/// Each ends with its entry; the last one may lack it.
fn groups(is_entry: &[bool]) -> Vec<Range<usize>> {
    let mut from = 0;
    let mut groups = Vec::new();
    for group in is_entry.split_inclusive(|is_entry| *is_entry) {
        groups.push(from..from + group.len());
        from += group.len();
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Native frames: `e` is the loop, `|` what calls another interpreter; functions: capitals are entries. Complete halves end with a dot.
    fn joined(native: &str, python: &str, keeps_loops: bool) -> (String, bool) {
        let (is_native_complete, is_python_complete) =
            (native.ends_with('.'), python.ends_with('.'));
        let [native, python] = [native, python].map(|half| half.trim_end_matches('.'));
        let is_loop: Vec<bool> = native.chars().map(|c| c == 'e').collect();
        let is_entry: Vec<bool> = python.chars().map(char::is_uppercase).collect();
        let spliced = splice(&Halves {
            is_loop: &is_loop,
            is_native_complete,
            own: native.find('|').unwrap_or(native.len()),
            is_entry: &is_entry,
            is_python_complete,
            keeps_loops,
        });
        let text = |piece: &Piece| match piece {
            Piece::Native(range) => native[range.clone()].to_owned(),
            Piece::Python(range) => python[range.clone()].to_owned(),
        };
        (
            spliced.pieces.iter().map(text).collect(),
            spliced.is_matched,
        )
    }

    #[test]
    fn functions_stand_where_the_loop_stood() {
        let cases = [
            // Waiting in C; one call of the loop for three functions.
            ("123em.", "abX.", ("123abXm.", true)),
            // sorted() calls a key, which calls on.
            ("ejem.", "kLnM.", ("kLjnMm.", true)),
            // No Python at all, or not yet.
            ("123m.", ".", ("123m.", true)),
            ("eem.", "X.", ("eXm.", true)),
            // The walk by tables was lost: functions go on to the root.
            ("12e3", "aXbY.", ("12aX3bY", true)),
            // Deeper than is walked: the loop stands for what is missing.
            ("1ejem.", "aXb", ("1aXjbm.", true)),
            ("1ejejem.", "aXb", ("1aXjbjem.", true)),
            // The outer interpreter's functions are not walked.
            ("12e3|ejem.", "abX.", ("12abX3|ejem", false)),
            ("e3|em.", ".", ("e3|em", false)),
            ("12e3|m.", "abX.", ("12abX3|m", true)),
            // One of both halves is wrong.
            ("12m.", "aX.", ("12maX", false)),
            ("eeem.", "X.", ("eeXm.", false)),
        ];
        for (native, python, (whole, is_matched)) in cases {
            let whole = whole.trim_end_matches('.').to_owned();
            assert_eq!(
                joined(native, python, false),
                (whole, is_matched),
                "{native} {python}"
            );
        }
    }

    #[test]
    fn whoever_only_asks_about_interpreters_is_in_no_other_one() {
        assert!(are_within(&[false, true, false], &[false, true]));
        assert!(are_within(&[false, true], &[]));
        assert!(!are_within(&[false, false], &[false]));
        assert!(!are_within(&[true, false], &[true, true]));
    }

    #[test]
    fn a_loop_that_is_kept_stands_below_its_functions() {
        for (native, python, whole) in [
            ("123em.", "abX.", "123abXem"),
            ("ejem.", "kLnM.", "kLejnMem"),
            ("eem.", "X.", "eXem"),
            ("123m.", ".", "123m"),
        ] {
            let joined = joined(native, python, true);
            assert_eq!(joined, (whole.to_owned(), true), "{native} {python}");
        }
    }

    #[test]
    fn nothing_is_lost_or_told_twice_whatever_comes() {
        for seed in 0_u32..1 << 16 {
            let bits = |from: u32, count: u32| -> Vec<bool> {
                (0..count)
                    .map(|bit| seed >> (from + bit) & 1 == 1)
                    .collect()
            };
            let (is_loop, is_entry) = (bits(0, 7), bits(7, 7));
            let spliced = splice(&Halves {
                is_loop: &is_loop,
                is_native_complete: seed >> 14 & 1 == 1,
                own: seed.count_ones() as usize % 8,
                is_entry: &is_entry,
                is_python_complete: seed >> 15 & 1 == 1,
                keeps_loops: false,
            });
            let all = |wanted: fn(&Piece) -> Option<&Range<usize>>| -> Vec<usize> {
                spliced
                    .pieces
                    .iter()
                    .filter_map(wanted)
                    .flat_map(Clone::clone)
                    .collect()
            };
            let python = all(|piece| match piece {
                Piece::Python(range) => Some(range),
                Piece::Native(_) => None,
            });
            assert_eq!(python, (0..7).collect::<Vec<_>>(), "{seed:b}");
            let native = all(|piece| match piece {
                Piece::Native(range) => Some(range),
                Piece::Python(_) => None,
            });
            assert!(native.is_sorted(), "{seed:b}");
            let is_kept = |at: &usize| !is_loop[*at];
            let kept: Vec<usize> = (0..7).filter(is_kept).collect();
            let left: Vec<usize> = native.iter().copied().filter(is_kept).collect();
            assert_eq!(left, kept, "{seed:b}");
        }
    }
}
