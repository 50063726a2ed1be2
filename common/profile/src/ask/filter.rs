//! Some of the stacks.

use regex_lite::Regex;

use super::top::value_of;
use crate::recording::{Recording, Row};

/// Which stacks are kept.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// All of these must match a function of the stack.
    pub focus: Vec<Regex>,
    /// None of these may.
    pub ignore: Vec<Regex>,
    /// Label and what its value must match.
    pub tags: Vec<(String, Regex)>,
}

impl Filter {
    /// The stacks that it keeps.
    pub fn apply(&self, recording: &Recording) -> Recording {
        // Each name is looked at once.
        let matching = |pattern: &Regex| -> Vec<bool> {
            recording
                .frames()
                .iter()
                .map(|frame| pattern.is_match(recording.text(frame.name)))
                .collect()
        };
        let focus: Vec<Vec<bool>> = self.focus.iter().map(matching).collect();
        let ignore: Vec<Vec<bool>> = self.ignore.iter().map(matching).collect();
        let has = |row: &Row<'_>, matches: &Vec<bool>| {
            recording
                .frame_ids(row.key.stack)
                .any(|frame| matches[frame as usize])
        };
        recording.filtered(|row| {
            focus.iter().all(|matches| has(row, matches))
                && !ignore.iter().any(|matches| has(row, matches))
                && self
                    .tags
                    .iter()
                    .all(|(label, pattern)| pattern.is_match(&value_of(recording, row, label)))
        })
    }
}
