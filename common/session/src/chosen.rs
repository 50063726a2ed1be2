//! The targets of this run, for the command that looks further.

use profile::escape::terminal;

use crate::targets::Targets;

/// Options that choose the same for another command, see [`Targets::to_options`]; a program that was started is started again.
pub fn options(targets: &Targets, is_there: fn(u32) -> bool) -> String {
    let words = targets.command.iter().map(|word| word.to_str());
    let words: Option<Vec<String>> = words.map(|word| word.and_then(quoted)).collect();
    match words {
        Some(words) if !words.is_empty() => format!("-- {}", words.join(" ")),
        _ => targets.to_options(is_there),
    }
}

/// A word that a shell leaves whole; `None`: a terminal would obey it.
fn quoted(word: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+:@/,=%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Some(word.to_owned());
    }
    let is_inert = terminal(word) == word;
    is_inert.then(|| format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_again() {
        let mut targets = Targets {
            pids: vec![7],
            ..Targets::default()
        };
        assert_eq!(options(&targets, |_| true), "-p 7");
        targets.command = ["make", "it's", "-j4"].map(Into::into).to_vec();
        assert_eq!(options(&targets, |_| true), r"-- make 'it'\''s' -j4");
        targets.command = ["make", "\u{1b}c"].map(Into::into).to_vec();
        assert_eq!(options(&targets, |_| false), "", "a terminal would obey");
    }
}
