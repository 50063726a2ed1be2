//! Names come from other processes: what may not reach a folded line or a terminal is replaced here.

use std::borrow::Cow;

/// Control characters: C0, DEL, C1.
fn is_control(c: char) -> bool {
    c.is_control()
}

/// Characters that reorder or hide the text around them.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A frame's name inside a folded line: `;` becomes `:`, control characters become `?`.
pub fn folded(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed("[empty]");
    }
    if !name.contains(|c| c == ';' || is_control(c)) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(
        name.chars()
            .map(|c| {
                if c == ';' {
                    ':'
                } else if is_control(c) {
                    '?'
                } else {
                    c
                }
            })
            .collect(),
    )
}

/// The last frame of a folded line, already escaped.
///
/// A blank before digits at the end would read as a second number, which makes the line a differential one.
pub fn last_frame(name: Cow<'_, str>) -> Cow<'_, str> {
    let Some((head, tail)) = name.rsplit_once(char::is_whitespace) else {
        return name;
    };
    let is_number = !tail.is_empty() && tail.chars().all(|c| c.is_ascii_digit() || c == '.');
    // A trailing blank would be swallowed together with the one before the value.
    if is_number || tail.is_empty() {
        Cow::Owned(format!("{head}_{tail}"))
    } else {
        name
    }
}

/// A name on a terminal: nothing in it moves the cursor, changes colours or turns the line around.
pub fn terminal(name: &str) -> Cow<'_, str> {
    if !name.contains(|c| is_control(c) || is_bidirectional(c)) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        match c {
            c if is_control(c) && c.is_ascii() => text += &format!("\\x{:02x}", u32::from(c)),
            c if is_control(c) || is_bidirectional(c) => {
                text += &format!("\\u{{{:x}}}", u32::from(c))
            }
            c => text.push(c),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_and_control_characters_do_not_survive() {
        assert_eq!(folded("a;b\nc\x1b[31m\u{9b}"), "a:b?c?[31m?");
        assert_eq!(folded(""), "[empty]");
        assert!(matches!(folded("std::vec<int>"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_number_at_the_end_is_part_of_the_name() {
        let last = |name: &'static str| last_frame(name.into());
        assert_eq!(last("pool 3"), "pool_3");
        assert_eq!(last("pool 3 500"), "pool 3_500");
        assert_eq!(last("pool 1.5"), "pool_1.5");
        assert_eq!(last("pool 3 "), "pool 3_");
        assert_eq!(last("pool x3"), "pool x3");
    }

    #[test]
    fn terminals_are_safe() {
        assert_eq!(
            terminal("a\x1b]0;evil\x07\u{202e}"),
            "a\\x1b]0;evil\\x07\\u{202e}"
        );
        assert_eq!(terminal("caf\u{e9}"), "caf\u{e9}");
    }
}
