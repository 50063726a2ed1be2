//! Text of `perf script`: events with their stacks, and with their times.

mod frame_line;
mod frames;
mod lines;
mod stacks;
mod sum;

use std::io::Read;

pub use frame_line::{StackLine, stack_line};
pub use lines::{Event, header};
pub(super) use sum::read;

use super::{Lines, ReadError};

/// What a file with weighed samples says of itself: `# usekit: value samples in count`.
const WEIGHED: (&str, &str) = ("# usekit: value ", " in count");

/// Calls `each` with the time (s, of the machine's clock) and the weight of every event; for heat maps.
///
/// # Errors
///
/// When the text cannot be read.
pub fn times_of(
    input: &mut impl Read,
    mut each: impl FnMut(f64, u64, &Event<'_>),
) -> Result<(), ReadError> {
    let mut lines = Lines::new(input);
    let mut weighs = false;
    while lines.advance()? {
        let line = lines.line();
        if line.starts_with(b"#") {
            let remark = String::from_utf8_lossy(line);
            weighs |= remark.starts_with(WEIGHED.0) && remark.trim_end().ends_with(WEIGHED.1);
        } else if !line.starts_with(b"\t")
            && let Some(event) = header(&String::from_utf8_lossy(line))
        {
            let weight = event.period.filter(|_| weighs).unwrap_or(1);
            if let Some(time) = event.time {
                each(time, weight, &event);
            }
        }
    }
    Ok(())
}
