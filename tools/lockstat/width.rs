//! Width of lines.

/// Columns of a line.
pub(crate) const WIDTH: usize = 80;
