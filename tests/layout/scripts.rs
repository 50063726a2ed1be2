//! Scripts that end where any part of a pipe fails (`set -o pipefail`): a reader that stops early kills its writer by SIGPIPE, at
//! times, and the script ends with status 141.

use std::fs;
use std::path::{Path, PathBuf};

/// Readers that leave before their input ends, in the words of a pipe's right side.
fn leaves_early(reader: &str) -> bool {
    let mut words = reader.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut options = words.clone().take_while(|word| word.starts_with('-'));
    match program {
        "head" => true,
        "grep" => options.any(|option| {
            let letters = option.trim_start_matches('-');
            let is_short = !option.starts_with("--");
            is_short && letters.contains(['q', 'm', 'l'])
                || ["quiet", "silent", "max-count"].contains(&letters)
        }),
        "awk" => reader.contains("exit"),
        "sed" => [";q", "q}", "{q", "p;q"]
            .iter()
            .any(|quit| reader.contains(quit)),
        _ => false,
    }
}

/// The pipes of a script, by line, whose reader leaves early.
pub(crate) fn pipes_that_break(script: &str) -> Vec<String> {
    let code = script
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    let joined = code.replace("\\\n", " ").replace("|\n", "| ");
    let breaks = |line: &&str| {
        line.replace("||", " or ")
            .split('|')
            .skip(1)
            .any(|reader| leaves_early(reader.trim_start()))
    };
    joined.lines().filter(breaks).map(Into::into).collect()
}

/// The scripts below a directory that end where any part of a pipe fails.
pub(crate) fn with_pipefail(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with(".git") {
                with_pipefail(&path, found);
            }
            continue;
        }
        let script = fs::read_to_string(&path).unwrap_or_default();
        if script.starts_with("#!") && script.contains("pipefail") {
            found.push((path, script));
        }
    }
}

#[test]
fn readers_that_leave_early_are_known() {
    for line in [
        "a | head -n 1",
        "a |\n    grep -q b",
        "a | grep -xqE b",
        "a | awk '/b/ {print; exit}'",
        "a | sed -n '/b/{p;q}'",
        "if a | grep -m1 b; then",
    ] {
        assert_eq!(pipes_that_break(line).len(), 1, "{line}");
    }
    for line in [
        "a | sed -n 1p",
        "a | grep -E 'quick|m' >/dev/null",
        "a || head -n 1 b",
        "grep -q a b",
        "# a | head",
    ] {
        assert!(pipes_that_break(line).is_empty(), "{line}");
    }
}
