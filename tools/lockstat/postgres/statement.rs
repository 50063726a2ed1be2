//! The statement that a session of PostgreSQL's is at, without the data in it.

use symbols::memory;

/// The variable that has its address; null between statements.
pub(crate) const VARIABLE: &str = "debug_query_string";
/// Bytes of a statement that are read: what follows is of no use here.
const LONGEST_READ: usize = 1024;
/// Characters that are shown.
const LONGEST: usize = 120;

/// A mark for a string, a number, or the rest of one that was not read.
const LITERAL: char = '?';

/// The statement of process `tgid`, whose variable is at `pointer_at`; `None`: there is none, or its memory did not say.
pub(crate) fn statement(tgid: u32, pointer_at: u64) -> Option<String> {
    let mut pointer = [0; 8];
    let read = memory::read(tgid, pointer_at, &mut pointer).ok()?;
    let at = u64::from_ne_bytes(pointer);
    (read == pointer.len() && at != 0).then_some(())?;
    let mut text = [0; LONGEST_READ];
    let read = memory::read(tgid, at, &mut text).ok()?;
    let text = text[..read].split(|byte| *byte == 0).next()?;
    let plain = without_literals(&String::from_utf8_lossy(text));
    (!plain.is_empty()).then(|| shortened(&plain))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// SQL with a mark for each string and number, without remarks, and with one blank where there was any space. The lexical rules are
/// those of PostgreSQL's manual, "SQL Syntax"; what a text that was cut leaves open is taken for a string.
fn without_literals(sql: &str) -> String {
    let mut plain = String::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let token = token(rest, first);
        let (text, after) = rest.split_at(token.length);
        match token.kind {
            Kind::Space if plain.is_empty() || plain.ends_with(' ') => {}
            Kind::Space => plain.push(' '),
            Kind::Literal => plain.push(LITERAL),
            Kind::Plain => plain += text,
        }
        rest = after;
    }
    plain.trim_end().to_owned()
}

enum Kind {
    Space,
    Literal,
    /// A name, a keyword, an operator.
    Plain,
}

struct Token {
    kind: Kind,
    /// Bytes, at least one.
    length: usize,
}

fn token(rest: &str, first: char) -> Token {
    let of = |kind, length: Option<usize>| Token {
        kind,
        length: length.unwrap_or(rest.len()),
    };
    let after = &rest[first.len_utf8()..];
    match first {
        _ if first.is_whitespace() => of(Kind::Space, Some(first.len_utf8())),
        '-' if after.starts_with('-') => of(Kind::Space, rest.find('\n')),
        '/' if after.starts_with('*') => of(Kind::Space, remark_end(rest)),
        '\'' => of(Kind::Literal, quoted_end(rest, '\'', false)),
        '"' => of(Kind::Plain, quoted_end(rest, '"', false)),
        'e' | 'E' if after.starts_with('\'') => {
            let end = quoted_end(after, '\'', true);
            of(Kind::Literal, end.map(|end| end + 1))
        }
        'b' | 'B' | 'x' | 'X' | 'n' | 'N' if after.starts_with('\'') => {
            let end = quoted_end(after, '\'', false);
            of(Kind::Literal, end.map(|end| end + 1))
        }
        '$' => dollar(rest),
        '0'..='9' => of(Kind::Literal, rest.find(|next| !is_of_number(next))),
        _ if is_of_name(first) => of(Kind::Plain, rest.find(|next| !is_of_name(next))),
        _ => of(Kind::Plain, Some(first.len_utf8())),
    }
}

/// Letters belong to numbers as well: 0x1f, 1e6; a sign in an exponent is left over, and its number is a mark of its own.
fn is_of_number(next: char) -> bool {
    next.is_alphanumeric() || next == '.' || next == '_'
}

fn is_of_name(next: char) -> bool {
    next.is_alphanumeric() || next == '_' || next == '$'
}

/// Bytes up to the quote that ends what begins with one: a doubled one does not, nor one behind a backslash where that counts.
fn quoted_end(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, next)) = chars.next() {
        if escapes && next == '\\' {
            chars.next();
        } else if next == quote && chars.next_if(|(_, then)| *then == quote).is_none() {
            return Some(at + quote.len_utf8());
        }
    }
    None
}

/// Bytes of a remark between `/*` and `*/`, with those that are in it.
fn remark_end(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// `$1`, a parameter; `$tag$ … $tag$`, a string; or a mere `$`.
fn dollar(rest: &str) -> Token {
    let tag = rest[1..].find(|next| !(is_of_name(next) && next != '$'));
    let tag = tag.map_or(rest.len(), |end| end + 1);
    let is_string =
        rest[tag..].starts_with('$') && !rest[1..].starts_with(|next: char| next.is_ascii_digit());
    if !is_string {
        return Token {
            kind: Kind::Plain,
            length: tag,
        };
    }
    let mark = &rest[..=tag];
    let end = rest[mark.len()..].find(mark);
    Token {
        kind: Kind::Literal,
        length: end.map_or(rest.len(), |end| end + 2 * mark.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_numbers_are_marks_and_nothing_else_is() {
        let statements = [
            (
                "UPDATE t SET a = 'secret', b = 12.5e3 WHERE id=7",
                "UPDATE t SET a = ?, b = ? WHERE id=?",
            ),
            (
                "select  1\n\tfrom t2 -- of Ann's\n where c3 = $1",
                "select ? from t2 where c3 = $1",
            ),
            (
                "a = 'it''s' AND b = E'\\'x' AND c = 'y\\'",
                "a = ? AND b = ? AND c = ?",
            ),
            (
                "\"it's 1\" = x'1F' /* a /* b */ 'c */ || n'd'",
                "\"it's 1\" = ? || ?",
            ),
            ("DO $$ it's $$; x = $b1$ $$ 'q $b1$ + 1", "DO ?; x = ? + ?"),
            ("price$2 = 0x1f + 1_000 - .5", "price$2 = ? + ? - .?"),
            ("'ünï' = 'ß", "? = ?"),
            ("x = $tag$ cut", "x = ?"),
            ("x /* cut", "x"),
            ("$", "$"),
        ];
        for (sql, plain) in statements {
            assert_eq!(without_literals(sql), plain, "{sql}");
        }
    }

    #[test]
    fn no_text_is_too_odd() {
        let odd = [
            "'",
            "\"",
            "$",
            "\\",
            "/*",
            "*/",
            "--",
            "\n",
            "é",
            "1",
            "e'",
            "$a$",
            "\u{1f600}",
            "x",
        ];
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text += odd[(seed >> 33) as usize % odd.len()];
            }
            let plain = without_literals(&text);
            assert!(
                text.contains('"') || !plain.contains('\''),
                "{text:?}: {plain:?}"
            );
            assert_eq!(without_literals(&plain), plain, "{text:?}");
        }
    }

    #[test]
    fn a_long_one_is_cut_between_characters() {
        let long = shortened(&"é".repeat(200));
        assert_eq!(long.chars().count(), LONGEST + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_process_says_the_statement_that_its_variable_points_to() {
        static TEXT: &[u8] = b"SELECT 'x', 1 FROM t\0";
        let pointer = TEXT.as_ptr();
        let at = std::ptr::from_ref(&pointer) as u64;
        let said = statement(std::process::id(), at);
        assert_eq!(said.as_deref(), Some("SELECT ?, ? FROM t"));
        let null: *const u8 = std::ptr::null();
        assert_eq!(
            statement(std::process::id(), std::ptr::from_ref(&null) as u64),
            None
        );
        assert_eq!(statement(std::process::id(), 8), None);
    }
}
