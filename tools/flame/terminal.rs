//! The terminal that results are read on.

use std::io::{self, IsTerminal};

use profile::style::Style;

/// Columns for tables: what the shell says, or 100.
pub(crate) fn width() -> usize {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    columns.unwrap_or(100)
}

/// Bold headings on terminals only.
pub(crate) fn style() -> Style {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    (!refused && io::stdout().is_terminal()).into()
}
