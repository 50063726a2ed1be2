//! Text of `perf script`: events with their stacks, and with their times.

mod frames;
mod lines;
mod stacks;

use std::io::Read;

pub(super) use lines::is_header;
pub use lines::{Event, StackLine, header, stack_line};

use super::{DEEPEST, Lines, ReadError, ReadOptions};
use crate::recording::{Header, NameId, Recording, RowKey, TaskKey, Value};
use frames::Frames;
use stacks::Stacks;

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

/// Reads all events into one recording.
pub(super) fn read(input: &mut impl Read, options: &ReadOptions) -> Result<Recording, ReadError> {
    let mut reader = Reader::new(options);
    let mut lines = Lines::new(input);
    while lines.advance()? {
        let result = reader.line(lines.line());
        result.map_err(|what| lines.error(what))?;
    }
    Ok(reader.end())
}

struct Reader<'a> {
    options: &'a ReadOptions,
    recording: Recording,
    frames: Frames,
    stacks: Stacks,
    /// Thread and weight of the event that is being read.
    event: Option<(TaskKey, u64)>,
    /// Lines of a stack may follow, of an event that counts or not.
    is_inside: bool,
    /// Indices of frames, leaf → root, as printed.
    stack: Vec<u32>,
    /// What a sample of a clock stands for, where the file says it as a whole; 0: it is no clock's.
    period_ns: Option<u64>,
    /// Sum of what samples of a clock stand for, ns, and how many have one.
    periods: (u64, u64),
    event_name: String,
    other_events: u64,
    weighs: bool,
    times: Option<(f64, f64)>,
}

impl<'a> Reader<'a> {
    fn new(options: &'a ReadOptions) -> Self {
        Self {
            options,
            recording: Recording::new(Header {
                values: vec![Value {
                    name: "samples".into(),
                    unit: "count".into(),
                }],
                has_counts: true,
                ..Header::default()
            }),
            frames: Frames::new(options.names_only),
            stacks: Stacks::default(),
            event: None,
            is_inside: false,
            stack: Vec::new(),
            period_ns: None,
            periods: (0, 0),
            event_name: String::new(),
            other_events: 0,
            weighs: false,
            times: None,
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        // Stacks are indented by a tab; names of threads by blanks, and one may look like an address: cafe.
        let may_be_frame = match line.first() {
            Some(b'\t') => true,
            Some(b' ') => !is_header(&String::from_utf8_lossy(line)),
            _ => false,
        };
        if self.is_inside
            && may_be_frame
            && let Some(frame) = stack_line(line)
        {
            if self.event.is_none() {
                return Ok(());
            }
            if self.stack.len() >= DEEPEST {
                return Err("more than 16,384 frames".into());
            }
            self.stack.push(self.frames.id(&frame, &mut self.recording));
            return Ok(());
        }
        let text = String::from_utf8_lossy(line);
        if text.trim().is_empty() {
            self.is_inside = false;
            self.finish();
            return Ok(());
        }
        if let Some(remark) = text.strip_prefix('#') {
            self.remark(remark.trim());
            return Ok(());
        }
        let Some(event) = header(&text) else {
            return Err(format!(
                "neither an event nor a line of its stack: {}",
                crate::escape::terminal(&text.chars().take(60).collect::<String>())
            ));
        };
        self.finish();
        self.is_inside = true;
        self.begin(&event);
        Ok(())
    }

    /// What this project writes about the whole file.
    fn remark(&mut self, remark: &str) {
        let header = &mut self.recording.header;
        if let Some(value) = remark.strip_prefix("usekit: value ") {
            if let Some((name, unit)) = value.rsplit_once(" in ") {
                header.values[0] = Value {
                    name: name.into(),
                    unit: unit.into(),
                };
                self.weighs = true;
            }
        } else if let Some(tool) = remark.strip_prefix("usekit: tool ") {
            header.tool = tool.into();
        } else if let Some(ns) = remark.strip_prefix("usekit: duration_ns ") {
            header.duration_ns = ns.parse().unwrap_or(0);
        } else if let Some(ns) = remark.strip_prefix("usekit: period_ns ") {
            self.period_ns = ns.parse().ok();
        } else if let Some(comment) = remark.strip_prefix("usekit: comment ") {
            header.comments.push(comment.into());
        }
    }

    fn begin(&mut self, event: &Event<'_>) {
        if self.event_name.is_empty() {
            event.name.clone_into(&mut self.event_name);
        } else if self.event_name != event.name {
            // Events of different kinds cannot be added up.
            self.other_events += 1;
            return;
        }
        let first = self.times.map_or(event.time, |(first, _)| first);
        self.times = Some((
            first,
            self.times
                .map_or(event.time, |(_, last)| last.max(event.time)),
        ));
        let offset = event.time - first;
        if self.options.from.is_some_and(|from| offset < from)
            || self.options.to.is_some_and(|to| offset >= to)
        {
            return;
        }
        let (pid, tid) = match self.options.names_only {
            true => (0, 0),
            false => (event.pid, event.tid),
        };
        let task = TaskKey {
            comm: self.recording.names.id(event.comm),
            pid,
            tid,
        };
        let is_clock = event.name.starts_with("cpu-clock") || event.name.starts_with("task-clock");
        if let Some(period) = event.period.filter(|_| is_clock) {
            self.periods = (self.periods.0.saturating_add(period), self.periods.1 + 1);
        }
        let weight = if self.weighs {
            event.period.unwrap_or(1)
        } else {
            1
        };
        self.event = Some((task, weight));
        // Without a stack, the function stands behind the event's name.
        let frame = stack_line(event.rest.as_bytes());
        if let Some(frame) = frame.filter(|frame| !frame.module.is_empty()) {
            self.stack.push(self.frames.id(&frame, &mut self.recording));
        }
    }

    fn finish(&mut self) {
        let Some((task, weight)) = self.event.take() else {
            return;
        };
        self.frames
            .set_modules(&mut self.stack, &mut self.recording);
        let stack = self.stacks.id(&self.stack, &mut self.recording);
        self.stack.clear();
        let key = RowKey {
            task,
            stack,
            end: None,
            reason: NameId::NONE,
            idle: false,
            waker: 0,
            labels: 0,
        };
        self.recording.add(&key, 1, &[weight]);
    }

    fn end(mut self) -> Recording {
        self.finish();
        let header = &mut self.recording.header;
        if let Some((first, last)) = self.times
            && header.duration_ns == 0
        {
            header.duration_ns = ((last - first) * 1e9) as u64;
        }
        if !self.weighs {
            let mean_ns = self.periods.0.checked_div(self.periods.1);
            header.period_ns = self.period_ns.or(mean_ns).unwrap_or(0);
        }
        if !self.weighs && !self.event_name.is_empty() {
            header.tool = format!("perf {}", self.event_name);
        }
        if self.other_events > 0 {
            header.comments.push(format!(
                "{} of other kinds than {} left out",
                crate::units::counted(self.other_events, "events"),
                self.event_name
            ));
        }
        self.recording
    }
}
