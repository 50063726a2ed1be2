//! Scripts that end where any part of a pipe fails (`set -o pipefail`): a reader that stops early kills its writer by SIGPIPE, at
//! times, and the script ends with status 141.

use std::fs;
use std::path::{Path, PathBuf};

/// Readers that leave before their input ends, in the words of a pipe's right side.
fn leaves_early(reader: &str) -> bool {
    let is_setting = |word: &&str| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    // `|&`, too.
    let reader = reader.trim_start_matches('&');
    let mut words = reader.split_whitespace().skip_while(is_setting);
    let program = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let ends = |word: &&str| ["--", "&&", "or"].contains(word);
    let own = words.iter().position(ends).unwrap_or(words.len());
    // The last word may be followed by another command.
    let is_last = |word: &&str| word.ends_with([';', ')']);
    let last = words.iter().position(is_last);
    let own = &words[..last.map_or(own, |last| own.min(last + 1))];
    let mut options = own.iter().filter(|word| word.starts_with('-'));
    match program {
        "head" => true,
        "grep" => options.any(|option| {
            let letters = option.trim_start_matches('-').trim_end_matches([';', ')']);
            let is_short = !option.starts_with("--");
            is_short && letters.contains(['q', 'm', 'l'])
                || ["quiet", "silent", "max-count"].contains(&letters)
        }),
        "awk" => reader.contains("exit"),
        "sed" => {
            let quits = |script: &&str| {
                let script = script.trim_matches(['\'', '"', ';', ')']);
                let before = script.strip_suffix('q');
                before.is_some_and(|before| {
                    before.ends_with(|c: char| c.is_ascii_digit() || "/$".contains(c))
                })
            };
            let in_braces = [";q", "q}", "{q", "p;q"];
            in_braces.iter().any(|quit| reader.contains(quit)) || words.iter().any(quits)
        }
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
    // Others' directories are no part of this.
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        }
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
        "a |& head",
        "a | LC_ALL=C grep -q b",
        "a | grep b -q; then",
        "a | sed 1q",
        "a | sed '/b/q'",
    ] {
        assert_eq!(pipes_that_break(line).len(), 1, "{line}");
    }
    for line in [
        "a | sed -n 1p",
        "a | grep -E 'quick|m' >/dev/null",
        "a || head -n 1 b",
        "grep -q a b",
        "a | grep b && c -q",
        "a | grep b; c -q",
        "a | grep -e b -- -q",
        "a | sed 's/b/q/'",
        "# a | head",
    ] {
        assert!(pipes_that_break(line).is_empty(), "{line}");
    }
}
