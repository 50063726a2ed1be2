//! Shares, and text cut to fit into columns of a terminal, of which a character takes none, one or two.

use std::fmt::Display;
use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

use crate::escape::terminal;

/// Writes texts, each on a line.
///
/// # Errors
///
/// Those of `out`.
pub fn write_lines(
    lines: impl IntoIterator<Item: Display>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut lines = lines.into_iter();
    lines.try_for_each(|line| writeln!(out, "{line}"))
}

/// A share with one decimal; of nothing it is 0.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64)
}

/// A share without decimals; of nothing it is 0.
pub fn round_percent(part: u64, whole: u64) -> String {
    format!("{:.0}%", 100.0 * part as f64 / whole.max(1) as f64)
}

/// A share with two decimals that never rounds to all or nothing.
pub(crate) fn strict_percent(part: u64, whole: u64) -> String {
    let share = 100.0 * part as f64 / whole as f64;
    match part {
        0 => "0%".into(),
        _ if part == whole => "100%".into(),
        _ if share < 0.01 => "<0.01%".into(),
        _ if share > 99.99 => ">99.99%".into(),
        _ => format!("{share:.2}%"),
    }
}

/// A share, from 0 to 1, with as many digits as tell small ones from none.
pub(crate) fn share(share: f64) -> String {
    let share = 100.0 * share;
    if share >= 9.995 {
        format!("{share:.1} %")
    } else {
        format!("{share:.2} %")
    }
}

/// Columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// The selector of emoji makes what is before it wider.
fn columns_of(c: char) -> usize {
    match c {
        '\u{fe0f}' => 1,
        _ => c.width().unwrap_or(1),
    }
}

/// A name cut to so many columns, its end marked.
pub fn cut(name: &str, width: usize) -> String {
    if columns(name) <= width {
        return name.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += columns_of(*c);
        used <= width
    };
    let head: String = name.chars().take_while(fits).collect();
    format!("{head}…")
}

/// A name, cut so that the words behind it end within a width; a dozen columns of it stay in any case.
pub fn cut_to_fit(name: &str, rest: &str, width: usize) -> String {
    let room = width.saturating_sub(columns(rest)).max(12);
    format!("{}{rest}", cut_name(name, room))
}

/// Columns of a name below which it tells nothing.
const LEAST_OF_A_NAME: usize = 24;

/// A name and what is said of it in a line, behind words that go before; in more lines where only a fragment of the name would stay.
pub(crate) fn say_of(before: &str, name: &str, rest: &str, width: usize) -> Vec<String> {
    let room = width.saturating_sub(columns(before));
    if room.saturating_sub(columns(rest)) >= columns(name).min(LEAST_OF_A_NAME) {
        return vec![format!("{before}{}", cut_to_fit(name, rest, room))];
    }
    let (colon, rest) = match rest.strip_prefix(':') {
        Some(rest) => (":", rest.trim_start()),
        None => ("", rest.trim_start()),
    };
    let (first, more) = rest.split_once(", ").unwrap_or((rest, ""));
    let mut parts = vec![format!("  {first}")];
    if !more.is_empty() {
        parts[0] += ",";
        parts.push(more.to_owned());
    }
    let name = cut_name(name, room.saturating_sub(colon.len()));
    let mut lines = vec![format!("{before}{name}{colon}")];
    lines.extend(sentence(&parts, "", width));
    lines
}

/// Words that compilers put behind a function's name.
const PARTS: [&str; 7] = [
    "isra",
    "constprop",
    "part",
    "cold",
    "llvm",
    "lto_priv",
    "clone",
];

/// Tells if the end of a path is a function's name, and no more than the number or the word of one of its parts.
fn is_name(tail: &str) -> bool {
    let first = tail.split('.').next().unwrap_or_default();
    let begins = first
        .chars()
        .next()
        .is_some_and(|c| c != ':' && !c.is_ascii_digit());
    begins && !PARTS.contains(&first)
}

/// A function's name cut to so many columns: of a dotted or a Rust path the first parts give way, for the last ones tell most.
pub fn cut_name(name: &str, width: usize) -> String {
    // Python has `<locals>` and its like between dots.
    let mut angles = name.match_indices('<').map(|(at, _)| &name[..at]);
    let is_path = angles.all(|before| before.ends_with('.')) && !name.contains(['(', ' ', '/']);
    let begins = name.match_indices(['.', ':']).map(|(at, _)| at + 1);
    let mut tails = begins.map(|at| &name[at..]).filter(|tail| is_name(tail));
    let fits = |tail: &&str| !tail.is_empty() && columns(tail) < width;
    match tails
        .find(fits)
        .filter(|_| is_path && columns(name) > width)
    {
        Some(tail) => format!("…{tail}"),
        None => cut(name, width),
    }
}

/// The same from the front, for paths.
pub fn cut_start(path: &str, width: usize) -> String {
    let reversed = |text: &str| text.chars().rev().collect::<String>();
    reversed(&cut(&reversed(path), width))
}

/// A thread's name, escaped, in the columns of the longest one that has nothing to escape.
pub fn comm(name: &str) -> String {
    cut(&terminal(name), 15)
}

/// A description cut to a width: what follows the last commas goes first, and whole.
pub fn shorten(description: &str, width: usize) -> String {
    let mut kept = description;
    while columns(kept) > width {
        match kept.rsplit_once(", ") {
            Some((head, _)) => kept = head,
            None => break,
        }
    }
    cut(kept, width)
}

/// A name of the form `file: variable` cut to a width: the file gives way.
pub fn fit(name: &str, width: usize) -> String {
    let parts = name.split_once(": ").filter(|_| columns(name) > width);
    let room = |variable: &str| width.checked_sub(columns(variable) + 2);
    match parts.map(|(file, variable)| (file, variable, room(variable))) {
        Some((file, variable, Some(room))) if room > 3 => {
            format!("{}: {variable}", cut(file, room))
        }
        _ => cut(name, width),
    }
}

/// Columns of a terminal that reports are made for.
pub const WIDTH: usize = 80;

/// Parts of a sentence, with a mark such as `;` between them, in lines of a width, all but the first indented; a part that is wider stays whole.
pub fn sentence(parts: &[String], mark: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let end = if at + 1 < parts.len() { mark } else { "" };
        match lines.last_mut() {
            Some(line) if (columns(line) + columns(part) + 1 + end.len()) <= width => {
                *line += &format!(" {part}{end}");
            }
            Some(_) => lines.push(format!("  {part}{end}")),
            None => lines.push(format!("{part}{end}")),
        }
    }
    lines
}

/// Text in lines of a width, all but the first indented. Breaks anywhere: long C++ names have no blanks to break at.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    // Room for some text in every line, however narrow the terminal.
    let width = width.max(indent + 8);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += columns_of(c);
        if used > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            used = indent + columns_of(c);
        }
        line.push(c);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_text_is_whole() {
        assert_eq!(wrap("", 20, 4), [""]);
        assert_eq!(wrap("  0123456789", 12, 4), ["  0123456789"]);
        assert_eq!(wrap("0123456789abcd", 12, 4), ["0123456789ab", "    cd"]);
        assert_eq!(wrap("0123456789abcd", 0, 4), ["0123456789ab", "    cd"]);
    }

    #[test]
    fn a_sentence_breaks_between_its_parts() {
        let parts = ["one two", "three", "four"].map(String::from);
        assert_eq!(sentence(&parts, ";", 20), ["one two; three; four"]);
        assert_eq!(sentence(&parts, ";", 19), ["one two; three;", "  four"]);
        assert_eq!(sentence(&parts, ";", 5), ["one two;", "  three;", "  four"]);
        assert_eq!(sentence(&[], ";", 5), [""; 0]);
    }

    #[test]
    fn cut_text_says_so() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut_start("abcdefg", 6), "…cdefg");
    }

    #[test]
    fn the_last_parts_of_a_functions_name_stay() {
        for (name, width, shown) in [
            (
                "django.core.handlers.Base._get",
                30,
                "django.core.handlers.Base._get",
            ),
            (
                "django.core.handlers.Base._get",
                29,
                "…core.handlers.Base._get",
            ),
            ("django.core.handlers.Base._get", 12, "…Base._get"),
            ("django.core.handlers.Base._get", 4, "dja…"),
            ("tokio::runtime::Context::run", 20, "…Context::run"),
            ("app::find<std::string, int>", 12, "app::find<s…"),
            ("serving.run.<locals>.execute", 20, "…<locals>.execute"),
            ("should_retry_later.isra.0", 12, "should_retr…"),
            ("should_retry_later.part.0.cold", 12, "should_retr…"),
            ("find<app::key,app::value>", 12, "find<app::k…"),
            ("net/http.(*conn).serve", 12, "net/http.(*…"),
            ("a_function_without_parts", 12, "a_function_…"),
            ("ends.with.a.dot.", 8, "…a.dot."),
        ] {
            assert_eq!(cut_name(name, width), shown, "{name} {width}");
        }
    }

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        assert_eq!(columns("日本"), 4);
        assert_eq!(columns("e\u{301}"), 1);
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語a", 6), "日本…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut_start("日本語", 4), "…語");
        assert_eq!(wrap("日本語日本語", 12, 4), ["日本語日本語"]);
        assert_eq!(wrap("a日本語日本語", 12, 4), ["a日本語日本", "    語"]);
        let parts = ["日本", "語"].map(String::from);
        assert_eq!(sentence(&parts, ";", 7), ["日本;", "  語"]);
    }

    #[test]
    fn what_does_not_fit_goes_piece_by_piece() {
        let name = "qemu-system-x86 23317, 6 threads, for 2.00 s";
        assert_eq!(shorten(name, 80), name);
        assert_eq!(shorten(name, 34), "qemu-system-x86 23317, 6 threads");
        assert_eq!(shorten(name, 28), "qemu-system-x86 23317");
        assert_eq!(shorten(name, 10), "qemu-syst…");
    }

    #[test]
    fn a_variable_outlives_its_file() {
        let name = "libLLVM.so.22.1: ManagedStatics";
        assert_eq!(fit(name, 31), name);
        assert_eq!(fit(name, 24), "libLLVM…: ManagedStatics");
        assert_eq!(fit(name, 18), "libLLVM.so.22.1: …");
        assert_eq!(fit("a lock of 4711", 9), "a lock o…");
    }

    #[test]
    fn nothing_has_no_share() {
        assert_eq!(percent(0, 0), "0.0%");
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(round_percent(0, 0), "0%");
        assert_eq!(round_percent(2, 3), "67%");
    }
}
