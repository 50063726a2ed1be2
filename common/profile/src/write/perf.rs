//! Text as `perf script` prints it, for readers of that.
//!
//! Tools that add up in the kernel know no times of single events: every event has time 0. A sample profile has an event
//! per sample, because most readers count events and not periods; other values are the period of one event per stack.

use std::io::{self, Write};

use crate::escape::terminal;
use crate::recording::{FrameKey, Recording, Row, StackId};

/// More samples than this are written as periods too.
const MOST_EVENTS: u64 = 1_000_000;

pub(super) fn write(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let header = &recording.header;
    let is_samples = recording.unit() == "count" && recording.total() <= MOST_EVENTS;
    writeln!(out, "# usekit: tool {}", terminal(&header.tool))?;
    if !is_samples {
        let unit = recording.unit();
        let alike = header.values.iter().filter(|value| value.unit == unit);
        let names: Vec<&str> = alike.map(|value| &*value.name).collect();
        let name = names.join(" + ");
        writeln!(
            out,
            "# usekit: value {} in {}",
            terminal(&name),
            terminal(unit)
        )?;
        writeln!(out, "# usekit: an event per stack, its period is the value")?;
    }
    writeln!(out, "# usekit: duration_ns {}", header.duration_ns)?;
    for comment in &header.comments {
        writeln!(out, "# usekit: comment {}", terminal(comment))?;
    }
    writeln!(
        out,
        "# usekit: added up while tracing, so times are not known and all 0\n"
    )?;
    let event = match &*header.tool {
        "offcputime" => "offcpu",
        _ if is_word(&header.event) => &header.event,
        _ if recording.unit() == "count" => "samples",
        _ => "value",
    };
    for row in recording.rows() {
        let weight = recording.weight(&row);
        let text = event_text(recording, &row, event, if is_samples { 1 } else { weight });
        let times = if is_samples {
            weight
        } else {
            u64::from(weight > 0)
        };
        for _ in 0..times {
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

/// Whether readers take it for the name of an event.
fn is_word(text: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    !text.is_empty() && text.bytes().all(is_usual)
}

fn event_text(recording: &Recording, row: &Row<'_>, event: &str, period: u64) -> String {
    let task = row.key.task;
    let comm = terminal(recording.text(task.comm));
    // A name of blanks would leave the line without its first word.
    let comm = if comm.trim().is_empty() {
        "?"
    } else {
        comm.trim()
    };
    let mut text = format!(
        "{comm} {}/{} [000] 0.000000: {period} {event}:\n",
        task.pid, task.tid
    );
    stack_text(recording, row.key.stack, &mut text);
    text.push('\n');
    text
}

fn stack_text(recording: &Recording, stack: StackId, text: &mut String) {
    for frame in recording.leaf_first(stack) {
        let name = terminal(recording.text(frame.name));
        // A name's own end must not look like an offset.
        *text += &format!(
            "\t{:16x} {name}+0x0 ({})\n",
            frame.address,
            module(recording, frame)
        );
    }
}

fn module<'a>(recording: &'a Recording, frame: &FrameKey) -> std::borrow::Cow<'a, str> {
    match recording.text(frame.module) {
        _ if frame.inlined => "inlined".into(),
        "" if frame.kind == crate::frame::FrameKind::Jit => "//anon".into(),
        "" => "[unknown]".into(),
        "[kernel]" => "[kernel.kallsyms]".into(),
        module => terminal(module),
    }
}
