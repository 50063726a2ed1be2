//! Names come from other processes: what may not reach a folded line or a terminal is replaced here.
//!
//! Two forms. A folded line keeps one character for one, so that widths and sorting stay; a terminal shows the code of
//! what was there. Neither can be undone. JSON needs nothing of this: its own escapes are lossless.

use std::borrow::Cow;

/// Whether a character acts on the text around it instead of standing for itself: C0, DEL, C1, Unicode's line ends,
/// and the marks that turn the direction of writing or are seen as nothing at all.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A frame's name inside a folded line.
///
/// `;` becomes `:`, active characters (tabs and newlines too) become `?`, blanks at either end become `_`: readers trim
/// lines, and a name must be the same wherever in the stack it is. A name of nothing is `[empty]`.
pub fn folded(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed("[empty]");
    }
    let has_blank_end =
        name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace);
    if !has_blank_end && !name.contains(|c| c == ';' || is_active(c)) {
        return Cow::Borrowed(name);
    }
    let text = name.chars().map(|c| match c {
        ';' => ':',
        c if is_active(c) => '?',
        c => c,
    });
    Cow::Owned(fill_ends(&text.collect::<String>()))
}

/// Blanks at the ends as `_`, one for one.
fn fill_ends(text: &str) -> String {
    let inner = text.trim();
    let before = text.chars().take_while(|c| c.is_whitespace()).count();
    let after = text.chars().count() - before - inner.chars().count();
    format!("{}{inner}{}", "_".repeat(before), "_".repeat(after))
}

/// The first frame of a folded line, already escaped by [`folded`].
///
/// inferno takes lines that begin with `# ` for comments and drops them, value and all; that blank becomes `_`.
pub fn first_frame(name: Cow<'_, str>) -> Cow<'_, str> {
    match name.strip_prefix("# ") {
        Some(rest) => Cow::Owned(format!("#_{rest}")),
        None => name,
    }
}

/// The last frame of a folded line, already escaped by [`folded`].
///
/// A blank before a number at the end would read as a second value, which makes the line a differential one
/// (flamegraph.pl takes `\s+?(\d+(?:\.\d*)?)$` off twice); that blank becomes `_`. Digits of every script count: some
/// readers' `\d` does too.
pub fn last_frame(name: Cow<'_, str>) -> Cow<'_, str> {
    let Some((head, tail)) = name.rsplit_once(char::is_whitespace) else {
        return name;
    };
    if tail.chars().all(|c| c.is_numeric() || c == '.') {
        Cow::Owned(format!("{head}_{tail}"))
    } else {
        name
    }
}

/// A name on a terminal: nothing in it moves the cursor, changes colours or turns the line around.
///
/// Active characters show as `\x1b` (ASCII) or `\u{202e}`.
pub fn terminal(name: &str) -> Cow<'_, str> {
    if !name.contains(is_active) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        match c {
            c if !is_active(c) => text.push(c),
            c if c.is_ascii() => text += &format!("\\x{:02x}", u32::from(c)),
            c => text += &format!("\\u{{{:x}}}", u32::from(c)),
        }
    }
    Cow::Owned(text)
}

/// A name in SVG or HTML, as text or between quotes: it is text there and nothing else.
///
/// Active characters show as on a terminal; what XML cannot have at all becomes U+FFFD.
pub fn markup(name: &str) -> Cow<'_, str> {
    let is_special = |c: char| matches!(c, '&' | '<' | '>' | '"' | '\'' | '\u{fffe}' | '\u{ffff}');
    if !name.contains(|c| is_special(c) || is_active(c)) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 16);
    for c in terminal(name).chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// A word as a POSIX shell leaves it whole, quoted where it has to be. Control characters stay as they are, see [`terminal`].
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+:@/,=%".contains(c);
    // Some shells put the path of a program for `=` and its name.
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_and_active_characters_do_not_survive() {
        assert_eq!(folded("a;b\nc\x1b[31m\u{9b}"), "a:b?c?[31m?");
        assert_eq!(folded("a\tb\u{2028}c\u{202e}"), "a?b?c?");
        assert_eq!(folded(""), "[empty]");
        assert!(matches!(folded("std::vec<int, a>"), Cow::Borrowed(_)));
    }

    #[test]
    fn blanks_at_the_ends_stay_visible() {
        assert_eq!(folded("  a b "), "__a b_");
        assert_eq!(folded("\u{a0}"), "_");
        assert_eq!(folded("   "), "___");
    }

    #[test]
    fn no_line_is_a_comment() {
        assert_eq!(first_frame("# a".into()), "#_a");
        assert_eq!(first_frame("#a".into()), "#a");
    }

    #[test]
    fn a_number_at_the_end_is_part_of_the_name() {
        let last = |name: &'static str| last_frame(folded(name)).into_owned();
        assert_eq!(last("pool 3"), "pool_3");
        assert_eq!(last("pool 3 500"), "pool 3_500");
        assert_eq!(last("pool 1.5"), "pool_1.5");
        assert_eq!(last("pool 1."), "pool_1.");
        assert_eq!(last("pool\u{a0}\u{663}"), "pool_\u{663}");
        assert_eq!(last("pool 3 "), "pool 3_");
        assert_eq!(last("pool x3"), "pool x3");
        assert_eq!(last("500"), "500");
    }

    #[test]
    fn terminals_are_safe() {
        assert_eq!(
            terminal("a\x1b]0;evil\x07\u{202e}"),
            "a\\x1b]0;evil\\x07\\u{202e}"
        );
        assert_eq!(terminal("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(terminal("caf\u{e9}"), "caf\u{e9}");
    }
}
