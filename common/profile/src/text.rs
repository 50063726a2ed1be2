//! Text in columns. One character is taken for one column.

/// A share with one decimal; of nothing it is 0.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64)
}

/// A name cut to a width in characters, its end marked.
pub fn cut(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    let head: String = name.chars().take(width.saturating_sub(1)).collect();
    format!("{head}…")
}

/// The same from the front, for paths.
pub fn cut_start(path: &str, width: usize) -> String {
    let reversed = |text: &str| text.chars().rev().collect::<String>();
    reversed(&cut(&reversed(path), width))
}

/// Text in lines of a width, all but the first indented. Breaks anywhere: long C++ names have no blanks to break at.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    // Room for some text in every line, however narrow the terminal.
    let width = width.max(indent + 8);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut columns = 0;
    for c in text.chars() {
        if columns == width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            columns = indent;
        }
        line.push(c);
        columns += 1;
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
    fn cut_text_says_so() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
    }

    #[test]
    fn nothing_has_no_share() {
        assert_eq!(percent(0, 0), "0.0%");
        assert_eq!(percent(1, 3), "33.3%");
    }
}
