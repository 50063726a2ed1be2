//! Text of `perf script`: events with their stacks, and with their times.

mod beside;
mod frames;
mod lines;
mod parser;
mod pieces;
mod stacks;
mod sum;

use std::io::Read;

pub(super) use beside::read;
pub(super) use lines::is_header;
pub use lines::{Event, StackLine, header, stack_line};

use super::{Lines, ReadError};

/// Calls `each` with the time (s, of the machine's clock) and the weight of every event; for heat maps.
///
/// # Errors
///
/// When the text cannot be read.
pub fn times_of(
    input: &mut impl Read,
    mut each: impl FnMut(f64, &Event<'_>),
) -> Result<(), ReadError> {
    let mut lines = Lines::new(input);
    while lines.advance()? {
        if !lines.line().starts_with(b"\t")
            && !lines.line().starts_with(b"#")
            && let Some(event) = header(&String::from_utf8_lossy(lines.line()))
        {
            each(event.time, &event);
        }
    }
    Ok(())
}
