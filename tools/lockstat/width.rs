//! Width of lines, and what is cut to fit.

/// Columns of a line.
pub(crate) const WIDTH: usize = 100;

/// At most `columns` characters.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.into();
    }
    let mut cut: String = text.chars().take(columns - 1).collect();
    cut.push('…');
    cut
}
