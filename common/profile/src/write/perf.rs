//! Text as `perf script` prints it, for readers of that.
//!
//! Where single samples were kept, each is an event with its time. Tools that add up in the kernel know none: every event
//! has time 0 then. A sample profile has an event per sample, because most readers count events and not periods; other
//! values, and samples that stand for several, are the period of their event.

use std::io::{self, Write};

use crate::escape::terminal;
use crate::recording::{FrameKey, Recording, RowKey, StackId, TaskKey};

/// A sample, and when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Of the machine's monotonic clock, ns.
    pub time_ns: u64,
    /// Where the thread ran.
    pub cpu: u32,
    /// The thread; 0: as the profile's sample has it.
    pub tid: u32,
    /// What it counts for: 1, or what was added up.
    pub weight: u64,
    /// Index into [`crate::model::Profile::samples`].
    pub sample: usize,
}

/// More samples than this are written as periods too.
const MOST_EVENTS: u64 = 1_000_000;

pub(super) fn write(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let is_samples = matches!(recording.unit(), "count" | "") && recording.total() <= MOST_EVENTS;
    write_header(recording, is_samples, out)?;
    if !is_samples {
        writeln!(out, "# usekit: an event per stack, its period is the value")?;
    }
    writeln!(
        out,
        "# usekit: added up while tracing, so times are not known and all 0\n"
    )?;
    let event = event_name(recording);
    for row in recording.rows() {
        let weight = recording.weight(&row);
        let period = if is_samples { 1 } else { weight };
        let place = Place {
            cpu: 0,
            time_ns: 0,
            task: row.key.task,
        };
        let mut text = event_line(recording, &place, event, period);
        stack_text(recording, row.key.stack, &mut text);
        text.push('\n');
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

/// An event per sample, at its time; its period is what it counts for, where that is not 1 for all. `keys`: of the samples that the
/// moments are of.
pub(super) fn write_moments(
    recording: &Recording,
    keys: &[RowKey],
    moments: &[Moment],
    out: &mut impl Write,
) -> io::Result<()> {
    // Readers that add up periods are told to; the others count events.
    let is_samples = recording.unit() == "count" && moments.iter().all(|moment| moment.weight == 1);
    write_header(recording, is_samples, out)?;
    writeln!(out, "# usekit: times are of the monotonic clock\n")?;
    let event = event_name(recording);
    for moment in moments {
        let Some(key) = keys.get(moment.sample) else {
            continue;
        };
        let tid = if moment.tid > 0 {
            moment.tid
        } else {
            key.task.tid
        };
        let place = Place {
            cpu: moment.cpu,
            time_ns: moment.time_ns,
            task: TaskKey { tid, ..key.task },
        };
        let mut text = event_line(recording, &place, event, moment.weight);
        stack_text(recording, key.stack, &mut text);
        writeln!(out, "{text}")?;
    }
    Ok(())
}

/// What is said about the whole file.
fn write_header(recording: &Recording, is_samples: bool, out: &mut impl Write) -> io::Result<()> {
    let header = &recording.header;
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
            if unit.is_empty() {
                "count".into()
            } else {
                terminal(unit)
            }
        )?;
    }
    writeln!(out, "# usekit: period_ns {}", header.period_ns)?;
    writeln!(out, "# usekit: duration_ns {}", header.duration_ns)?;
    for comment in &header.comments {
        writeln!(out, "# usekit: comment {}", terminal(comment))?;
    }
    Ok(())
}

fn event_name(recording: &Recording) -> &str {
    let header = &recording.header;
    match &*header.tool {
        "offcputime" => "offcpu",
        _ if is_word(&header.event) => &header.event,
        _ if recording.unit() == "count" => "samples",
        _ => "value",
    }
}

/// Whether readers take it for the name of an event.
fn is_word(text: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    !text.is_empty() && text.bytes().all(is_usual)
}

/// Where and when an event was, and whose.
struct Place {
    cpu: u32,
    time_ns: u64,
    task: TaskKey,
}

fn event_line(recording: &Recording, place: &Place, event: &str, period: u64) -> String {
    let task = place.task;
    let comm = terminal(recording.text(task.comm));
    // A name of blanks would leave the line without its first word.
    let comm = if comm.trim().is_empty() {
        "?"
    } else {
        comm.trim()
    };
    let (seconds, micros) = (
        place.time_ns / 1_000_000_000,
        place.time_ns / 1000 % 1_000_000,
    );
    format!(
        "{comm} {}/{} [{:03}] {seconds}.{micros:06}: {period} {event}:\n",
        task.pid, task.tid, place.cpu
    )
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
