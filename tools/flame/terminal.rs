//! The terminal that results are read on.

use std::io::{self, IsTerminal};

use profile::style::Style;
use profile::text::WIDTH;

/// Columns for tables: what COLUMNS says, else the terminal's, else 80.
pub(crate) fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    let said = columns.and_then(|columns| columns.parse().ok());
    said.or_else(|| {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns >= 40)
    })
    .unwrap_or(WIDTH)
}

/// Bold headings on terminals only.
pub(crate) fn style() -> Style {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    (!refused && io::stdout().is_terminal()).into()
}
