//! Printed runs in documents have the words that the programs print.
//!
//! Numbers, names and all that has a digit or a sign in it differ from run to run. The words between them are held against the strings
//! of the sources, cut into pieces where a value is put in: a line has to be made of whole pieces, as printing makes it. A sentence
//! that was reworded leaves old words for which there is no piece.

use std::collections::HashSet;
use std::path::Path;

use super::pieces::{Pieces, Program, is_one_of};
use super::{TOOLS, files, read};

/// Names in the runs that look like words: of programs, devices, system calls, and what a run was asked for.
const NAMES: &str = "access bash biolatency brk close cpu dd demo dyn execve fio flame futex Interrupts kernel lockstat ls main meta \
    mmap most mprotect munmap newfstatat offcputime openat pgbench postgres pressure prio profile rahead read rseq runqlat rust sed sh some \
    statfs statx sync switch syscount vda web why write ECHILD ENOENT epoll fdatasync for lwlock PGSemaphoreLock PGSemaphoreUnlock \
    PortalRun ProcLockWakeup transactionid WaitEventSetWait WALWrite";
/// Functions in flame's runs.
const FUNCTIONS: &str = "gc mark parse reduce run";

/// A line with its number.
type Line = (usize, String);

/// Lines that a tool has printed, of its examples: what is neither a command nor told by who wrote them, up to the usage message.
fn printed(tool: &str) -> Vec<Line> {
    let recorded = read(&format!("man/{tool}_example.txt"));
    let help = format!("# {tool} --help");
    let lines = recorded.lines().take_while(|line| *line != help);
    let lines = lines.enumerate().map(|(at, line)| (at + 1, line));
    let told = told(tool);
    let is_printed = |line: &str| !line.starts_with("# ") && !told.contains(line);
    lines
        .filter(|(_, line)| is_printed(line))
        .map(|(at, line)| (at, line.to_owned()))
        .collect()
}

/// Lines of a tool's examples that are not printed by runs; runs that are only shown end with the tool's closing line.
fn told(tool: &str) -> HashSet<String> {
    let closing = format!("{tool}: ");
    let mut told = HashSet::new();
    let mut lines = read(&format!("man/examples/{tool}.txt"));
    lines.push('\n');
    let mut is_shown = false;
    let mut before = "";
    for line in lines.lines() {
        let is_end = line.starts_with(&closing) && line.contains("; cost ");
        let is_empty = line.is_empty() && before.starts_with("#! ");
        if line.starts_with("#! ") {
            is_shown = true;
        } else if is_shown {
            is_shown = !is_end && !is_empty;
        } else {
            told.insert(line.to_owned());
        }
        before = line;
    }
    told
}

/// The run in the README.
fn printed_in_the_readme() -> Vec<Line> {
    let readme = read("README.md");
    let lines = readme.lines().enumerate();
    let run = lines.skip_while(|(_, line)| !line.starts_with("$ sudo "));
    run.skip(1)
        .take_while(|(_, line)| *line != "```")
        .filter(|(_, line)| *line != "[...]")
        .map(|(at, line)| (at + 1, line.to_owned()))
        .collect()
}

/// Titles of a table as words; `None`: the line is another one.
fn titles(line: &str) -> Option<String> {
    let line = line.trim_matches(|c: char| !c.is_alphanumeric());
    let words: Vec<&str> = line.split_whitespace().collect();
    let has = |is_of: fn(char) -> bool| {
        let words = words.iter().filter(|word| word.chars().all(is_of));
        words.count()
    };
    let are_titles = has(char::is_uppercase) >= 3 && has(char::is_lowercase) == 0;
    are_titles.then(|| words.join(" "))
}

/// Lines of these directories, tests and expected outputs included, with single blanks.
fn single_blanks(dirs: &[&str]) -> String {
    let mut text = String::new();
    for (_, file) in files(dirs, &["rs", "functions", "reasons"]) {
        for line in file.lines() {
            text.extend(line.split_whitespace().flat_map(|word| [" ", word]));
            text.push('\n');
        }
    }
    text
}

/// Looks whether a line of an expected output has these titles and no other behind them.
fn is_expected(titles: &str, text: &str) -> bool {
    let mut ends = text
        .match_indices(titles)
        .map(|(at, _)| &text[at + titles.len()..]);
    ends.any(|end| end.starts_with(['\\', '"', '\n']))
}

/// The sources of what is printed below a directory; tests have lines of their own.
fn printing(dir: &str) -> Vec<String> {
    let files = files(&[dir], &["rs"]).into_iter();
    let is_test = |path: &Path| {
        path.to_string_lossy().ends_with("tests.rs") || path.iter().any(|part| part == "tests")
    };
    files
        .filter(|(path, _)| !is_test(path))
        .map(|(_, text)| text)
        .collect()
}

/// Another program's complaint, or a document for programs.
fn is_of_another(line: &str, tool: &str) -> bool {
    let speaker = line.split_once(": ").map_or("", |(name, _)| name);
    line.starts_with('{') || speaker != tool && is_one_of(speaker, NAMES) && !speaker.contains(' ')
}

/// A line that names a command without the program that this starts, which is the user's.
fn without_command(line: &str) -> String {
    let parts = line
        .strip_prefix("next: ")
        .and_then(|line| line.split_once(" -- "));
    let Some((options, rest)) = parts else {
        return line.to_owned();
    };
    let answers = rest.rsplit_once("   # ").map_or("", |(_, answers)| answers);
    format!("next: {options} {answers}")
}

#[test]
fn printed_lines_are_made_of_what_the_programs_print() {
    let common = Pieces::of(&printing("common"));
    let shared = single_blanks(&["common", "tests/flame"]);
    let mut runs: Vec<(&str, String, Vec<Line>)> = TOOLS
        .iter()
        .map(|(tool, _)| (*tool, format!("man/{tool}_example.txt"), printed(tool)))
        .collect();
    runs.push(("flame", "man/flame_example.txt".into(), printed("flame")));
    runs.push(("why", "README.md".into(), printed_in_the_readme()));
    let mut odd = Vec::new();
    for (tool, page, lines) in runs {
        assert!(lines.len() > 10, "{page}: {} lines", lines.len());
        let mut sources = printing(&format!("tools/{tool}"));
        if tool == "why" {
            // It has its parts' words.
            let parts = ["offcputime", "runqlat", "profile", "lockstat", "biolatency"];
            let parts = parts.map(|part| format!("tools/{part}"));
            sources.extend(parts.iter().flat_map(|part| printing(part)));
        }
        let own = Pieces::of(&sources);
        let names: &[&str] = match tool {
            "flame" => &[NAMES, FUNCTIONS],
            _ => &[NAMES],
        };
        let program = Program {
            pieces: [&common, &own],
            names,
        };
        let expected = single_blanks(&[&format!("tools/{tool}")]);
        for (at, line) in lines {
            let is_known =
                |titles: String| is_expected(&titles, &expected) || is_expected(&titles, &shared);
            if titles(&line).is_some_and(|titles| !is_known(titles)) {
                odd.push(format!(
                    "{page}:{at}: no test expects these titles: {line:?}"
                ));
            }
            if !is_of_another(&line, tool)
                && let Some(word) = program.odd_word(&without_command(&line))
            {
                odd.push(format!("{page}:{at}: {word:?} in {line:?}"));
            }
        }
    }
    assert!(
        odd.is_empty(),
        "no strings of the program make these lines; reword them (make examples records all anew), or add a name to NAMES:\n{}",
        odd.join("\n")
    );
}
