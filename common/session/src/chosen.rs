//! The targets of this run, for the command that looks further.

use profile::escape::{quoted, terminal};

use crate::targets::Targets;

/// Options that choose the same for another command, see [`Targets::to_options`]; a program that was started is started again.
/// Empty: nothing was chosen. `None`: what was chosen has ended, or is no word for a command; without it a command would be about
/// everybody.
pub fn options(targets: &Targets, is_there: fn(u32) -> bool) -> Option<String> {
    let options = targets.to_options(is_there);
    let is_left = |ids: &[u32]| ids.is_empty() || ids.iter().any(|id| is_there(*id));
    let is_said = is_left(&targets.pids)
        && is_left(&targets.tids)
        && (targets.comm.is_none() || options.contains("--comm "))
        && (targets.cgroup.is_none() || options.contains("--cgroup "));
    if !is_said {
        return None;
    }
    if targets.command.is_empty() {
        // A choice by kind alone has no options that all tools know.
        return (!options.is_empty() || targets.are_all()).then_some(options);
    }
    let words = targets.command.iter().map(|word| word.to_str());
    // A terminal would obey what it does not print.
    let inert = words.map(|word| word.filter(|word| terminal(word) == *word).map(quoted));
    let words: Option<Vec<String>> = inert.collect();
    let line = format!("{options} -- {}", words?.join(" "));
    Some(line.trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(targets: &Targets) -> Option<String> {
        options(targets, |pid| pid == 7)
    }

    #[test]
    fn a_program_is_started_again() {
        let mut targets = Targets {
            pids: vec![7],
            ..Targets::default()
        };
        assert_eq!(of(&targets).as_deref(), Some("-p 7"));
        targets.pids.clear();
        targets.command = ["make", "it's", "-j4", "=ls"].map(Into::into).to_vec();
        assert_eq!(
            of(&targets).as_deref(),
            Some(r"-- make 'it'\''s' -j4 '=ls'")
        );
        targets.comm = Some("cc1".parse().expect("a pattern"));
        assert_eq!(
            of(&targets).as_deref(),
            Some(r"--comm cc1 -- make 'it'\''s' -j4 '=ls'")
        );
    }

    #[test]
    fn what_cannot_be_said_is_not_everybody() {
        assert_eq!(of(&Targets::default()).as_deref(), Some(""));
        let mut targets = Targets {
            pids: vec![8],
            ..Targets::default()
        };
        assert_eq!(of(&targets), None, "it has ended");
        targets.pids.clear();
        targets.command = ["make", "\u{1b}c"].map(Into::into).to_vec();
        assert_eq!(of(&targets), None, "a terminal would obey");
        targets.command.clear();
        for comm in ["-p", "a\u{1b}c", "a -- b"] {
            targets.comm = Some(comm.parse().expect("a pattern"));
            assert_eq!(of(&targets), None, "{comm:?}");
        }
        targets.comm = Some("my app*".parse().expect("a pattern"));
        assert_eq!(of(&targets).as_deref(), Some("--comm 'my app*'"));
    }
}
