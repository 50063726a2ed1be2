//! The command that looks further into files that were given, as a line for a shell.

use std::path::Path;

use profile::escape::{quoted, terminal};

use crate::input::Input;

const PICTURE: &str = "its stacks as a picture";

/// This program, as it was called.
fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_own = Path::new(&called).file_name() == Some("flame".as_ref());
    let name = called.to_str().filter(|_| is_own).unwrap_or("flame");
    quoted(name)
}

/// Looks whether a second reading finds what the first one did: stdin and pipes are used up.
fn is_kept(file: &Path) -> bool {
    file.is_file() && !file.starts_with("/dev") && !file.starts_with("/proc")
}

/// `next: flame COMMAND FILE... WORDS   # answers`; `None`: nobody could run it.
pub(crate) fn line(
    command: &str,
    files: &[&Path],
    input: &Input,
    words: &[&str],
    answers: &str,
) -> Option<String> {
    let mut line = vec![program(), command.to_owned()];
    for file in files {
        let name = file.to_str().filter(|_| is_kept(file))?;
        // A name that begins with a dash would be an option.
        let start = if name.starts_with('-') { "./" } else { "" };
        line.push(quoted(&format!("{start}{name}")));
    }
    line.extend(words.iter().map(|word| quoted(word)));
    line.extend(input.words().iter().map(|word| quoted(word)));
    let line = line.join(" ");
    let is_inert = terminal(&line) == line;
    is_inert.then(|| format!("next: {line}   # {answers}"))
}

/// The same for a function's callers and callees.
pub(crate) fn peek(file: &Path, input: &Input, function: &str) -> Option<String> {
    let pattern = format!("^{}$", regex_lite::escape(function));
    let answers = "what calls it, and what it calls";
    line("peek", &[file], input, &[&pattern], answers)
}

/// The same for a picture of the stacks with functions that match.
pub(crate) fn stacks_of(file: &Path, input: &Input, pattern: &str) -> Option<String> {
    let words = ["--focus", pattern, "-o", "part.html"];
    line("filter", &[file], input, &words, PICTURE)
}

/// The same for a picture of samples with labels of these values.
pub(crate) fn part(file: &Path, input: &Input, tags: &[(&str, &str)]) -> Option<String> {
    let tags = tags.iter();
    let tags = tags.map(|(label, value)| format!("{label}={}", regex_lite::escape(value)));
    let mut words = Vec::new();
    for tag in tags {
        words.extend(["--tag".to_owned(), tag]);
    }
    words.extend(["-o", "part.html"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    line("filter", &[file], input, &words, PICTURE)
}

/// The same for a picture of all that changed.
pub(crate) fn picture(files: [&Path; 2], input: &Input, how: Option<&str>) -> Option<String> {
    let answers = "all of it as a picture";
    let words: Vec<&str> = ["-o", "change.html"].into_iter().chain(how).collect();
    line("diff", &files, input, &words, answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_leaves_words_whole() {
        assert_eq!(quoted("a/b.json"), "a/b.json");
        assert_eq!(quoted("it's $x"), r"'it'\''s $x'");
        assert_eq!(quoted(""), "''");
    }
}
