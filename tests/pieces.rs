//! Lines are made of the strings of sources, cut into pieces where a value is put in.

use std::collections::{HashMap, HashSet};

use regex_lite::Regex;

/// Units, behind a number.
const UNITS: &str = "ns us ms s B KiB MiB GiB pp Hz";
/// Pieces of a word each that stand side by side, in the singular; any others are no sentence.
const PAIRS: &str = "by count, call of, count for, count of, count over, for spinlock, function grew, lock in, meanwhile asleep, more function, \
    more stack, over call, sample in, sleep in, thread behind, thread within, time in, tracing for";

pub(super) fn is_one_of(word: &str, words: &str) -> bool {
    words
        .split_whitespace()
        .any(|other| self::word(other) == word)
}

/// A token without what is around its word, in the singular; nothing of an option.
fn word(token: &str) -> &str {
    let token = token.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '-');
    if token.starts_with('-') && token.len() > 1 {
        return "";
    }
    let word = token.trim_matches(|c: char| !c.is_alphanumeric());
    let word = word.strip_suffix("'s").unwrap_or(word);
    let singular = word.strip_suffix('s').filter(|word| word.len() > 2);
    singular.unwrap_or(word)
}

/// Pieces of text by their first word, and what is left of each where a line begins amid it.
#[derive(Default)]
pub(super) struct Pieces {
    whole: HashMap<String, HashSet<Vec<String>>>,
    ends: HashMap<String, HashSet<Vec<String>>>,
}

impl Pieces {
    pub(super) fn of(sources: &[String]) -> Self {
        // Comments and characters may have quotation marks in them.
        let tokens = r##"//[^\n]*|'(?:\\[^']+|[^'\\])'|r#"(?s:.*?)"#|"(?:[^"\\]|\\(?s:.))*""##;
        let tokens = Regex::new(tokens).expect("a pattern");
        let joint = Regex::new(r"\\\n\s*").expect("a pattern");
        let value = Regex::new(r"\{[^{}]*\}").expect("a pattern");
        let mut pieces = Self::default();
        for source in sources {
            let code = source.split("#[cfg(test)]").next().unwrap_or_default();
            for found in tokens.find_iter(code) {
                let string = found.as_str().trim_matches(['r', '#']);
                let string = string
                    .strip_prefix('"')
                    .and_then(|text| text.strip_suffix('"'));
                let Some(string) = string else {
                    continue;
                };
                let string = joint.replace_all(string, "").replace("\\n", "\n");
                let string = string.replace("{{", "(").replace("}}", ")");
                for line in value.replace_all(&string, "\0").lines() {
                    pieces.add(line);
                }
            }
        }
        pieces
    }

    /// Adds what is between the values of a line.
    fn add(&mut self, line: &str) {
        let mut words = Vec::new();
        for token in line.split_whitespace().chain(["\0"]) {
            match word(token) {
                _ if token.contains('\0') => self.keep(std::mem::take(&mut words)),
                "" if token.len() > 1 && token.contains('-') => {
                    self.keep(std::mem::take(&mut words))
                }
                "" => {}
                word => words.push(word.to_owned()),
            }
        }
    }

    fn keep(&mut self, words: Vec<String>) {
        for start in 1..words.len() {
            let end = words[start..].to_vec();
            self.ends.entry(end[0].clone()).or_default().insert(end);
        }
        if let Some(first) = words.first() {
            self.whole.entry(first.clone()).or_default().insert(words);
        }
    }

    /// Those that begin with a word; `amid`: and what is left of others.
    fn beginning(&self, first: &str, amid: bool) -> impl Iterator<Item = &Vec<String>> {
        let ends = self.ends.get(first).filter(|_| amid);
        self.whole.get(first).into_iter().chain(ends).flatten()
    }
}

/// A program's strings and names.
pub(super) struct Program<'a> {
    pub(super) pieces: [&'a Pieces; 2],
    pub(super) names: &'a [&'a str],
}

impl Program<'_> {
    /// The first word of a line that no piece accounts for.
    pub(super) fn odd_word<'a>(&self, line: &'a str) -> Option<&'a str> {
        let words = Words::of(line);
        let mut farthest = 0;
        // Tells if a word can be reached, and if so behind a piece of one word.
        let mut reached = vec![[false; 2]; words.all.len() + 1];
        reached[0][0] = true;
        for at in 0..words.all.len() {
            if reached[at] == [false; 2] {
                continue;
            }
            farthest = at;
            let rest = &words.all[at..];
            let is_name = |names: &&str| is_one_of(rest[0], names);
            if words.is_value(at) || self.names.iter().any(is_name) {
                reached[at + 1][0] = true;
            }
            let all = self.pieces.iter();
            for piece in all.flat_map(|pieces| pieces.beginning(rest[0], at == 0)) {
                let same = piece.iter().zip(rest).take_while(|(a, b)| a == *b);
                let same = same.count();
                let is_single = piece.len() == 1;
                let fits = same == piece.len() || same == rest.len();
                if fits && (!is_single || reached[at][0] || words.may_join(at)) {
                    reached[at + same][usize::from(is_single)] = true;
                }
            }
        }
        let is_whole = *reached.last().expect("an end") != [false; 2];
        (!is_whole).then(|| words.all[farthest])
    }
}

/// The words of a line.
struct Words<'a> {
    all: Vec<&'a str>,
    /// Between it and the word before is a blank and nothing else.
    joined: Vec<bool>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let (mut all, mut joined) = (Vec::new(), Vec::new());
        let mut is_open = false;
        for token in line.split(' ') {
            let found = match word(token) {
                // A name that was cut.
                _ if token.ends_with('…') => "",
                "" if token.len() > 1 && token.contains('-') => token,
                found => found,
            };
            if !found.is_empty() {
                all.push(found);
                // Titles of columns are apart, however narrow these are.
                let is_title = found.chars().all(char::is_uppercase);
                joined.push(is_open && token.starts_with(char::is_alphanumeric) && !is_title);
            }
            is_open = !found.is_empty() && token.ends_with(char::is_alphanumeric);
        }
        Self { all, joined }
    }

    /// A number, its unit, or a name that is no word.
    fn is_value(&self, at: usize) -> bool {
        let word = self.all[at];
        let is_behind_number = at > 0 && self.all[at - 1].ends_with(|c: char| c.is_ascii_digit());
        word.chars().count() == 1
            || !word.chars().all(char::is_alphabetic)
            || is_behind_number && is_one_of(word, UNITS)
    }

    /// Looks whether a piece of this word may stand behind another one of one word.
    fn may_join(&self, at: usize) -> bool {
        let is_here = |pair: &str| pair.split_once(' ') == Some((self.all[at - 1], self.all[at]));
        !self.joined[at] || PAIRS.split(", ").any(is_here)
    }
}

#[test]
fn lines_that_are_printed_no_more_are_found() {
    let source = r#"
        say!("{n} waits for a CPU in {}, {} of thread time;", '"', // "waits"
            "wide and \
             long");
        table(["TIME", "WAITED BEHIND"]); word("lost"); word("nothing"); format!("{} behind {}")
    "#;
    let pieces = Pieces::of(&[source.to_owned()]);
    let program = Program {
        pieces: [&pieces, &Pieces::default()],
        names: &["demo"],
    };
    for line in [
        "1,218 waits for a CPU in 3.00 s, 252 ms of thread time;",
        "1 wait for a CPU in 3.00 s, 252 ms of thread",
        "for a CPU in 2 ms, wide and long",
        "  TIME  WAITED BEHIND",
        "42% behind demo-worker 7",
    ] {
        assert_eq!(program.odd_word(line), None, "{line}");
    }
    for (line, word) in [
        (
            "7 waits for the CPU in 3.00 s, 2 ms of thread time;",
            "wait",
        ),
        ("7 waits for a CPU, 2 ms of thread time;", "wait"),
        ("7 waits for a CPU in 3.00 s, 2 ms of time;", "of"),
        ("wide and wide", "wide"),
        ("  TIME  WAITED FOR", "WAITED"),
        ("7 lost nothing", "nothing"),
    ] {
        assert_eq!(program.odd_word(line), Some(word), "{line}");
    }
}
