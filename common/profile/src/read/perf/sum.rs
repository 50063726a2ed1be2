//! Events with their stacks, added up as they come.

use std::io::Read;

use super::frame_line::{bare_address, stack_line};
use super::frames::Frames;
use super::lines::{Event, header, is_header, is_side_band};
use super::stacks::Stacks;
use crate::read::{DEEPEST, Lines, ReadError, ReadOptions};
use crate::recording::{Header, LeftOut, NameId, Recording, RowKey, TaskKey, Value};

/// Reads all events into one recording.
pub(in crate::read) fn read(
    input: &mut impl Read,
    options: &ReadOptions,
) -> Result<Recording, ReadError> {
    let mut lines = Lines::new(input);
    let mut sum = Sum::new(options);
    while lines.advance()? {
        if let Err(what) = sum.line(lines.line()) {
            sum.leave_out(|| lines.error(what).to_string());
        }
    }
    sum.end()
}

/// The recording that a file becomes.
struct Sum<'a> {
    options: &'a ReadOptions,
    recording: Recording,
    frames: Frames,
    stacks: Stacks,
    /// Lines of an event's stack may follow.
    is_inside: bool,
    /// A blank line was between the event and what follows.
    has_blank: bool,
    /// They belong to an event that is left out.
    is_malformed: bool,
    /// Owner and weight of the stack that is read; `None`: the event does not count.
    open: Option<(TaskKey, u64)>,
    /// The event's, as printed: leaf → root.
    stack: Vec<u32>,
    /// The kind of event that is added up: the first one's.
    event: Option<NameId>,
    /// It is of a clock.
    is_clock: bool,
    /// What a sample of a clock stands for, where the file says it as a whole; 0: it is no clock's.
    period_ns: Option<u64>,
    /// Sum of what samples of a clock stand for, ns, and how many have one.
    periods: (u64, u64),
    weighs: bool,
    times: Option<(f64, f64)>,
}

impl<'a> Sum<'a> {
    fn new(options: &'a ReadOptions) -> Self {
        Self {
            options,
            recording: Recording::new(Header {
                values: vec![Value::new("samples", "count")],
                has_counts: true,
                left_out: LeftOut {
                    with_events: true,
                    ..LeftOut::default()
                },
                ..Header::default()
            }),
            frames: Frames::new(options.names_only),
            stacks: Stacks::default(),
            is_inside: false,
            has_blank: false,
            is_malformed: false,
            open: None,
            stack: Vec::new(),
            event: None,
            is_clock: false,
            period_ns: None,
            periods: (0, 0),
            weighs: false,
            times: None,
        }
    }

    /// Adds the next line; says what is wrong with it.
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        // Stacks are indented by a tab; names of threads by blanks, and one may look like an address: cafe. Text that was pasted may
        // have lost what it was indented by.
        let may_be_frame = match line.first() {
            Some(b'\t') => true,
            Some(b' ') => !is_header(&String::from_utf8_lossy(line)),
            _ => line.ends_with(b")") && !is_header(&String::from_utf8_lossy(line)),
        };
        if self.is_inside
            && may_be_frame
            && let Some(frame) = stack_line(line).or_else(|| bare_address(line))
        {
            if self.stack.len() >= DEEPEST {
                return Err("more than 16,384 frames".into());
            }
            self.stack.push(self.frames.id(&frame, &mut self.recording));
            return Ok(());
        }
        let text = String::from_utf8_lossy(line);
        if text.trim().is_empty() {
            self.is_malformed = false;
            // perf has none before a stack, but texts that passed through other programs do: the stack may be still to come.
            self.has_blank = self.is_inside && self.stack.is_empty();
            if !self.has_blank {
                self.is_inside = false;
                self.finish();
            }
            return Ok(());
        }
        if let Some(remark) = text.strip_prefix('#') {
            // perf's own say nothing that is needed, and may be many.
            if let Some(remark) = remark.trim().strip_prefix("usekit: ") {
                self.remark(remark);
            }
            return Ok(());
        }
        let Some(event) = header(&text) else {
            if self.is_malformed || self.is_place(&text) {
                return Ok(());
            }
            if is_side_band(&text) {
                self.is_inside = false;
                self.finish();
                return Ok(());
            }
            let what = match stack_line(line) {
                Some(frame) if !frame.module.is_empty() => "a stack without its event",
                _ => "neither an event nor a line of its stack",
            };
            let text: String = text.trim().chars().take(60).collect();
            return Err(format!("{what}: {}", crate::escape::terminal(&text)));
        };
        self.finish();
        self.is_inside = true;
        self.has_blank = false;
        self.is_malformed = false;
        self.open = self.begin(&event);
        // Without a stack, the function stands behind the event's name; where there is no name, nothing else can stand there.
        let frame = stack_line(event.rest.as_bytes());
        let is_frame = |module: &[u8]| event.name.is_empty() || !module.is_empty();
        if let Some(frame) = frame.filter(|frame| is_frame(frame.module)) {
            self.stack.push(self.frames.id(&frame, &mut self.recording));
        }
        Ok(())
    }

    /// Looks whether a line is the place in the sources of the frame above, as `-F +srcline` prints it: `  a.c:12`, `  a.so[1f00]`.
    fn is_place(&self, line: &str) -> bool {
        let line = line.trim_end();
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let place = line
            .strip_suffix(']')
            .and_then(|line| line.rsplit_once('['));
        let place = place.or_else(|| line.rsplit_once(':'));
        self.is_inside
            && !self.stack.is_empty()
            && line.starts_with("  ")
            && place.is_some_and(|(_, number)| is_number(number))
    }

    /// Leaves out the event with a line that says nothing, up to the next one.
    fn leave_out(&mut self, what: impl FnOnce() -> String) {
        self.recording.header.left_out.add_malformed(what);
        // An event without a stack ends at a blank line.
        if self.has_blank && self.stack.is_empty() {
            self.finish();
        }
        self.is_inside = false;
        self.is_malformed = true;
        self.open = None;
        self.stack.clear();
    }

    /// What this project writes about the whole file.
    fn remark(&mut self, remark: &str) {
        let header = &mut self.recording.header;
        if let Some(value) = remark.strip_prefix("value ") {
            if let Some((name, unit)) = value.rsplit_once(" in ") {
                header.values[0] = Value::new(name, unit);
                // Events are fewer than what is counted: shares of them say nothing.
                header.has_counts &= unit != "count";
                self.weighs = true;
            }
        } else if let Some(tool) = remark.strip_prefix("tool ") {
            header.tool = tool.into();
        } else if let Some(ns) = remark.strip_prefix("duration_ns ") {
            header.duration_ns = ns.parse().unwrap_or(0);
        } else if let Some(ns) = remark.strip_prefix("period_ns ") {
            self.period_ns = ns.parse().ok();
        } else if let Some(comment) = remark.strip_prefix("comment ") {
            header.comments.push(comment.into());
        }
    }

    /// Owner and weight of the event; `None`: it does not count.
    fn begin(&mut self, event: &Event<'_>) -> Option<(TaskKey, u64)> {
        // The first event of any kind is where times are counted from.
        let is_in_time = self.is_in_time(event.time);
        let is_asked = |asked: &String| asked == event.name;
        if self.options.event.as_ref().is_none_or(is_asked) && self.event.is_none() {
            self.event = Some(self.recording.names.id(event.name));
            self.is_clock = ["cpu-clock", "task-clock"]
                .iter()
                .any(|clock| event.name.starts_with(clock));
        }
        let is_counted = |chosen| self.recording.text(chosen) == event.name;
        if !self.event.is_some_and(is_counted) {
            // Events of different kinds cannot be added up.
            self.recording.header.left_out.add(event.name);
            return None;
        }
        if !is_in_time {
            return None;
        }
        if let Some(period) = event.period.filter(|_| self.is_clock) {
            self.periods = (self.periods.0.saturating_add(period), self.periods.1 + 1);
        }
        let weight = event.period.filter(|_| self.weighs).unwrap_or(1);
        let (pid, tid) = match self.options.names_only {
            true => (0, 0),
            false => (event.pid, event.tid),
        };
        let comm = self.recording.names.id(event.comm);
        Some((TaskKey { comm, pid, tid }, weight))
    }

    /// Looks whether the event is between the times that are asked for.
    fn is_in_time(&mut self, time: Option<f64>) -> bool {
        let asked = (self.options.from, self.options.to);
        let Some(time) = time else {
            return asked == (None, None);
        };
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first, last.max(time)));
        let offset = time - first;
        asked.0.is_none_or(|from| offset >= from) && asked.1.is_none_or(|to| offset < to)
    }

    /// Adds the event whose stack was read.
    fn finish(&mut self) {
        if let Some((task, weight)) = self.open.take() {
            self.frames.finish(&mut self.stack, &mut self.recording);
            let key = RowKey {
                task,
                stack: self.stacks.id(&self.stack, &mut self.recording),
                end: None,
                reason: NameId::NONE,
                idle: false,
                waker: 0,
                labels: 0,
            };
            self.recording.add(&key, 1, &[weight]);
        }
        self.stack.clear();
    }

    fn end(mut self) -> Result<Recording, ReadError> {
        self.finish();
        let left_out = &self.recording.header.left_out;
        let has_events = self.recording.rows().len() > 0 || !left_out.events.is_empty();
        let is_whole = (self.options.from, self.options.to) == (None, None);
        if left_out.malformed > 0 && !has_events && is_whole {
            return Err(ReadError::unreadable("perf script text", left_out));
        }
        let name = self.event.map(|name| self.recording.text(name).to_owned());
        let header = &mut self.recording.header;
        if let Some((first, last)) = self.times
            && header.duration_ns == 0
        {
            let from = self.options.from.unwrap_or(0.0).max(0.0);
            let to = self.options.to.unwrap_or(f64::MAX).min(last - first);
            header.duration_ns = ((to - from).max(0.0) * 1e9) as u64;
        }
        let mean_ns = match self.weighs {
            true => None,
            false => self.periods.0.checked_div(self.periods.1),
        };
        if header.values[0].unit == "count" {
            header.period_ns = self.period_ns.or(mean_ns).unwrap_or(0);
        }
        let Some(name) = name else {
            return self.none();
        };
        if !self.weighs {
            header.tool = format!("perf {name}").trim_end().into();
        }
        for (other, count) in header.left_out.most() {
            header.comments.push(format!("{count} {other} left out"));
        }
        if self.times.is_none() && (self.options.from, self.options.to) != (None, None) {
            return Err(ReadError::whole("its events have no times to choose from"));
        }
        Ok(self.recording)
    }

    /// Not an event that counts.
    fn none(self) -> Result<Recording, ReadError> {
        let left_out = &self.recording.header.left_out;
        if let Some(event) = &self.options.event {
            let others: Vec<&str> = left_out.most().into_iter().map(|(name, _)| name).collect();
            let others = crate::escape::terminal(&others.join(", ")).into_owned();
            return Err(ReadError::whole(format!(
                "has no event {event}; it has {others}"
            )));
        }
        Ok(self.recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_has_its_line_and_byte() {
        let event = "  pool 7/8 [000] 1.5: 100 cpu-clock: \n\t10 f+0x1 (/bin/m)\n\n";
        let whole = event.repeat(2000);
        let read = |text: &str| read(&mut text.as_bytes(), &ReadOptions::default());
        assert_eq!(read(&whole).expect("events").total(), 2000);
        let left_out = |text: &str| read(text).expect("events").header.left_out;
        let cut = left_out(&(whole.clone() + "  pool 7/8 [000] 1e"));
        let start = format!("line 6001 (byte {}): neither", whole.len());
        assert!(cut.first.starts_with(&start), "{cut:?}");
        let deep = event.replacen("\n\n", &"\n\t10 f (m)".repeat(DEEPEST), 1);
        let LeftOut {
            first: wrong,
            malformed,
            ..
        } = left_out(&(deep + "\t11 g (m)\n\n" + event));
        assert!(
            wrong.contains("line 16386 (byte") && wrong.ends_with("16,384 frames"),
            "{wrong}"
        );
        assert_eq!(malformed, 1);
    }

    #[test]
    fn a_malformed_line_costs_its_event() {
        let event =
            |function: &str| format!("a 7/8 [000] 1.5: 100 cpu-clock: \n\t10 {function} (m)\n");
        let text = [
            &event("f"),
            "what?\n\t11 g (m)\n\n",
            &event("h"),
            "\n",
            &event("h"),
        ]
        .concat();
        let recording = read(&mut text.as_bytes(), &ReadOptions::default()).expect("events");
        assert_eq!(
            (recording.total(), recording.header.left_out.malformed),
            (2, 1)
        );
    }

    #[test]
    fn a_blank_line_before_the_stack_costs_nothing() {
        let event = "a 7/8 [000] 1.5: 100 cpu-clock: \n";
        let stack = "\t10 f (m)\n\t11 main (m)\n\n";
        let read = |text: String| {
            let recording = read(&mut text.as_bytes(), &ReadOptions::default()).expect("events");
            let depths = recording
                .rows()
                .map(|row| (recording.frame_ids(row.key.stack).count(), row.count));
            let mut depths: Vec<_> = depths.collect();
            depths.sort_unstable();
            (depths, recording.header.left_out.malformed)
        };
        assert_eq!(
            read(format!("{event}\n{stack}{event} \t\r\n\n{stack}")),
            (vec![(2, 2)], 0)
        );
        // Events that have none.
        assert_eq!(
            read(format!("{event}\n{event}\n{event}{stack}{event}\n")),
            (vec![(0, 3), (2, 1)], 0)
        );
        // The line behind it is no stack; the stack is another event's.
        assert_eq!(
            read(format!("{event}\nwhat?\n{stack}{event}")),
            (vec![(0, 2)], 1)
        );
        assert_eq!(
            read(format!("{event}{stack}{stack}{event}")),
            (vec![(0, 1), (2, 1)], 1)
        );
    }
}
