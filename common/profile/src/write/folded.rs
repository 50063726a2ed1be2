//! Folded lines of a recording.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::escape;
use crate::frame::FrameKind;
use crate::recording::{Boxes, Cell, Recording, RowKey, TaskKey};

/// Writes annotated lines, sorted. Times are in microseconds, as in bcc; sums that round to 0 have no line.
pub(super) fn write(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let divisor = if recording.unit() == "ns" { 1000 } else { 1 };
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for row in recording.rows() {
        let weight = recording.weight(&row);
        let sum = sums.entry(line(recording, row.key)).or_default();
        *sum = sum.saturating_add(weight);
    }
    for (line, sum) in sums {
        let value = sum / divisor + u64::from(divisor > 1 && sum % divisor >= divisor / 2);
        if value > 0 {
            writeln!(out, "{line} {value}")?;
        }
    }
    Ok(())
}

/// The thread's root frame, with IDs where the file that it came from showed them.
pub(crate) fn root(recording: &Recording, task: TaskKey) -> String {
    let comm = escape::first_frame(escape::folded(recording.text(task.comm)));
    match task.pid {
        _ if !recording.header.shows_threads => comm.into_owned(),
        0 => format!("{comm}-?/{}", task.tid),
        pid => format!("{comm}-{pid}/{}", task.tid),
    }
}

fn line(recording: &Recording, key: &RowKey) -> String {
    let boxes = Boxes {
        idle: true,
        reason: false,
        delimiter: false,
    };
    let mut line = root(recording, key.task);
    let mut last = line.clone();
    let cells = recording.chain(key, boxes);
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 || !line.is_empty() {
            line.push(';');
        }
        last = frame(recording, cell);
        line.push_str(&last);
    }
    let guarded = escape::last_frame(last.as_str().into());
    let length = line.len() - last.len();
    line.replace_range(length.., &guarded);
    line
}

fn frame(recording: &Recording, cell: &Cell) -> String {
    let text = recording.cell_text(cell);
    let name = escape::folded(&text);
    let mark = match (cell.frame.kind, cell.frame.inlined) {
        (FrameKind::Kernel, _) => "_[k]",
        (_, true) => "_[i]",
        (FrameKind::Jit, _) => "_[j]",
        _ => "",
    };
    format!("{name}{mark}")
}
