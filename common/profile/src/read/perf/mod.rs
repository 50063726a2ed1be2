//! Text of `perf script`: events with their stacks, and with their times.

mod lines;

use std::hash::BuildHasher;
use std::io::BufRead;

use foldhash::quality::RandomState;

pub(super) use lines::is_header;
pub use lines::{Event, StackLine, header, stack_line};

use super::{DEEPEST, Lines, ReadError, ReadOptions};
use crate::frame::FrameKind;
use crate::recording::{FrameKey, Header, Map, Recording, RowKey, StackId, TaskKey, Value};

/// Calls `each` with the time (s, of the machine's clock) and the weight of every event; for heat maps.
///
/// # Errors
///
/// When the text cannot be read.
pub fn times_of(
    input: &mut impl BufRead,
    mut each: impl FnMut(f64, &Event<'_>),
) -> Result<(), ReadError> {
    let mut lines = Lines::new(input);
    while lines.advance()? {
        let text = String::from_utf8_lossy(&lines.line);
        if !text.starts_with(['\t', '#'])
            && let Some(event) = header(&text)
        {
            each(event.time, &event);
        }
    }
    Ok(())
}

/// Reads all events into one recording.
pub(super) fn read(
    input: &mut impl BufRead,
    options: &ReadOptions,
) -> Result<Recording, ReadError> {
    let mut reader = Reader::new(options);
    let mut lines = Lines::new(input);
    while lines.advance()? {
        let is_indented = matches!(lines.line.first(), Some(b' ' | b'\t'));
        if reader.is_inside && is_indented && !lines.line.trim_ascii().is_empty() {
            if !reader.block.take(&lines.line, lines.number, lines.offset) {
                return Err(lines.error("a stack of more than 64 MiB"));
            }
            continue;
        }
        reader.end_block()?;
        let text = String::from_utf8_lossy(&lines.line);
        let result = reader.line(&text);
        result.map_err(|what| lines.error(what))?;
    }
    reader.end_block()?;
    Ok(reader.end())
}

/// The lines below an event, as they are: the same stacks come again and again, and are looked up as a whole.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    /// Where each line ends in `bytes`, and its number and offset in the file.
    lines: Vec<(usize, u64, u64)>,
}

/// Of one stack.
const LARGEST_BLOCK: usize = 64 << 20;

impl Block {
    /// Whether there was room.
    fn take(&mut self, line: &[u8], number: u64, offset: u64) -> bool {
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
        self.lines.push((self.bytes.len() - 1, number, offset));
        self.bytes.len() <= LARGEST_BLOCK
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
    }
}

struct Reader<'a> {
    options: &'a ReadOptions,
    block: Block,
    /// Stacks of blocks that were there before, by hashes as in `seen`.
    blocks: Map<[u64; 2], StackId>,
    /// The stack of the event that is being read, if it is known as a whole.
    known: Option<StackId>,
    /// How many events began.
    events: u64,
    recording: Recording,
    /// Thread and weight of the event that is being read.
    event: Option<(TaskKey, u64)>,
    /// Lines of a stack may follow, of an event that counts or not.
    is_inside: bool,
    /// Frames of lines that were there before, by two hashes of 64 bits with seeds that nobody knows.
    seen: Map<[u64; 2], FrameKey>,
    hashers: [RandomState; 2],
    /// Sum of what samples of a clock stand for, ns, and how many have one.
    periods: (u64, u64),
    /// Leaf → root, as printed.
    stack: Vec<FrameKey>,
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
            event: None,
            block: Block::default(),
            blocks: Map::default(),
            known: None,
            events: 0,
            is_inside: false,
            seen: Map::default(),
            hashers: [RandomState::default(), RandomState::default()],
            periods: (0, 0),
            stack: Vec::new(),
            event_name: String::new(),
            other_events: 0,
            weighs: false,
            times: None,
        }
    }

    fn line(&mut self, text: &str) -> Result<(), String> {
        if text.trim().is_empty() {
            self.is_inside = false;
            self.finish();
            return Ok(());
        }
        if let Some(remark) = text.strip_prefix('#') {
            self.remark(remark.trim());
            return Ok(());
        }
        if self.is_inside
            && text.starts_with([' ', '\t'])
            && let Some(frame) = self.frame_of(text)
        {
            if self.event.is_none() {
                return Ok(());
            }
            if self.stack.len() >= DEEPEST {
                return Err("more than 16,384 frames".into());
            }
            self.stack.push(frame);
            return Ok(());
        }
        let Some(event) = header(text) else {
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
        } else if let Some(comment) = remark.strip_prefix("usekit: comment ") {
            header.comments.push(comment.into());
        }
    }

    /// Takes in the lines below an event.
    fn end_block(&mut self) -> Result<(), ReadError> {
        if self.block.lines.is_empty() {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        let hash = self
            .hashers
            .each_ref()
            .map(|hasher| hasher.hash_one(&*block.bytes));
        self.known = self.blocks.get(&hash).copied();
        if self.known.is_none() {
            let (events, counts) = (self.events, self.event.is_some());
            let mut start = 0;
            for (end, number, offset) in &block.lines {
                let text = String::from_utf8_lossy(&block.bytes[start..*end]);
                let result = self.line(&text);
                result.map_err(|what| ReadError::at_line(what, *number, *offset))?;
                start = end + 1;
            }
            // Events may follow each other without a line between them, and those left out have no stack.
            if counts && events == self.events {
                let stack = self.stack_of();
                self.blocks.insert(hash, stack);
                self.known = Some(stack);
            }
        }
        self.block = block;
        self.block.clear();
        Ok(())
    }

    fn begin(&mut self, event: &Event<'_>) {
        self.events += 1;
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
        let task = TaskKey {
            comm: self.recording.names.id(event.comm),
            pid: event.pid,
            tid: event.tid,
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
    }

    /// The frame of a line: the same lines come again and again.
    fn frame_of(&mut self, text: &str) -> Option<FrameKey> {
        let hash = self.hashers.each_ref().map(|hasher| hasher.hash_one(text));
        if let Some(frame) = self.seen.get(&hash) {
            return Some(*frame);
        }
        let frame = self.frame(&stack_line(text)?);
        self.seen.insert(hash, frame);
        Some(frame)
    }

    fn frame(&mut self, line: &StackLine<'_>) -> FrameKey {
        let names = &mut self.recording.names;
        let inlined = line.module == "inlined";
        // perf prints the frame that it was inlined into next, with the module.
        let module = if inlined { "" } else { line.module };
        let known = !matches!(module, "" | "[unknown]");
        let base = module.rsplit('/').next().unwrap_or_default();
        let name = match line.symbol {
            "[unknown]" if known => names.id(&format!("[{}]", base.trim_matches(['[', ']']))),
            symbol => names.id(symbol),
        };
        FrameKey {
            module: if known {
                names.id(module)
            } else {
                crate::recording::NameId::NONE
            },
            address: if inlined { 0 } else { line.address },
            kind: kind(module, line.address),
            inlined,
            ..FrameKey::named(name)
        }
    }

    /// What the lines since the event's first make.
    fn stack_of(&mut self) -> StackId {
        let mut frames = std::mem::take(&mut self.stack);
        // The function that others were inlined into is printed behind them, and has the module.
        for index in (1..frames.len()).rev() {
            let (kind, module) = (frames[index].kind, frames[index].module);
            if frames[index - 1].inlined {
                (frames[index - 1].kind, frames[index - 1].module) = (kind, module);
            }
        }
        let stack = frames.iter().rev().fold(0, |stack: StackId, frame| {
            self.recording.push(stack, *frame)
        });
        self.stack = frames;
        self.stack.clear();
        stack
    }

    fn finish(&mut self) {
        let known = self.known.take();
        let Some((task, weight)) = self.event.take() else {
            self.stack.clear();
            return;
        };
        let stack = known.unwrap_or_else(|| self.stack_of());
        let key = RowKey {
            task,
            stack,
            end: None,
            reason: crate::recording::NameId::NONE,
            idle: false,
            waker: None,
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
            header.period_ns = self.periods.0.checked_div(self.periods.1).unwrap_or(0);
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

fn kind(module: &str, address: u64) -> FrameKind {
    let is_upper_half = address >> 63 == 1;
    match module {
        "[vdso]" | "[vsyscall]" | "[heap]" | "[stack]" => FrameKind::User,
        "//anon" | "[anon]" | "anon" => FrameKind::Jit,
        _ if module.starts_with("[kernel") || module.starts_with("[guest.kernel") => {
            FrameKind::Kernel
        }
        _ if module.ends_with("/vmlinux") || module.contains(".ko") => FrameKind::Kernel,
        _ if is_upper_half && !module.starts_with('/') => FrameKind::Kernel,
        _ if module.contains("/perf-") && module.ends_with(".map") => FrameKind::Jit,
        _ if module.starts_with("[JIT]") => FrameKind::Jit,
        _ => FrameKind::User,
    }
}
