//! Events added up, in the order of the file.

use super::parser::{Batch, Item, Seen};
use super::stacks::Stacks;
use crate::read::{ReadError, ReadOptions};
use crate::recording::{FrameKey, Header, NameId, Recording, RowKey, TaskKey, Value};

/// A parser's numbers as the recording has them.
#[derive(Default)]
struct Numbers {
    names: Vec<NameId>,
    /// Names in them are the recording's.
    frames: Vec<FrameKey>,
    /// By the parser's number; [`NOT_YET`] until an event that counts has the frame.
    ids: Vec<u32>,
}

const NOT_YET: u32 = u32::MAX;

/// The recording that a file becomes.
pub(super) struct Sum<'a> {
    options: &'a ReadOptions,
    recording: Recording,
    stacks: Stacks,
    /// By parser.
    numbers: Vec<Numbers>,
    /// Lines of the batches before.
    lines: u64,
    /// Bytes of the batches before.
    bytes: u64,
    /// Leaf → root, the recording's.
    stack: Vec<u32>,
    /// The kind of event that is added up: the first one's.
    event: Option<NameId>,
    /// It is of a clock.
    is_clock: bool,
    /// What a sample of a clock stands for, where the file says it as a whole; 0: it is no clock's.
    period_ns: Option<u64>,
    /// Sum of what samples of a clock stand for, ns, and how many have one.
    periods: (u64, u64),
    other_events: u64,
    weighs: bool,
    times: Option<(f64, f64)>,
}

impl<'a> Sum<'a> {
    pub(super) fn new(options: &'a ReadOptions, parsers: usize) -> Self {
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
            stacks: Stacks::default(),
            numbers: (0..parsers).map(|_| Numbers::default()).collect(),
            lines: 0,
            bytes: 0,
            stack: Vec::new(),
            event: None,
            is_clock: false,
            period_ns: None,
            periods: (0, 0),
            other_events: 0,
            weighs: false,
            times: None,
        }
    }

    /// What parsers must know.
    pub(super) fn names_only(&self) -> bool {
        self.options.names_only
    }

    /// Adds what the file's next piece said; gives the piece's memory back.
    pub(super) fn take(&mut self, parser: usize, mut batch: Batch) -> Result<Vec<u8>, ReadError> {
        if let Some(wrong) = batch.wrong {
            let line = self.lines + wrong.lines + 1;
            let offset = self.bytes + wrong.offset as u64;
            return Err(ReadError::at_line(wrong.what, line, offset));
        }
        self.learn(parser, &batch);
        let mut frames = &*batch.stack_frames;
        for item in batch.items.drain(..) {
            match item {
                Item::Remark(remark) => self.remark(&remark),
                Item::Event(event) => {
                    let (stack, rest) = frames.split_at(event.depth as usize);
                    frames = rest;
                    self.event(parser, &event, stack);
                }
            }
        }
        self.lines += batch.lines;
        self.bytes += batch.piece.len() as u64;
        Ok(batch.piece)
    }

    /// New names and frames of a parser.
    fn learn(&mut self, parser: usize, batch: &Batch) {
        let Numbers { names, frames, ids } = &mut self.numbers[parser];
        let texts = &mut self.recording.names;
        names.extend(batch.new_names.iter().map(|name| texts.id(name)));
        frames.extend(batch.new_frames.iter().map(|frame| FrameKey {
            name: names[frame.name.index()],
            module: names[frame.module.index()],
            ..*frame
        }));
        ids.resize(frames.len(), NOT_YET);
    }

    /// What this project writes about the whole file.
    fn remark(&mut self, remark: &str) {
        let header = &mut self.recording.header;
        if let Some(value) = remark.strip_prefix("value ") {
            if let Some((name, unit)) = value.rsplit_once(" in ") {
                header.values[0] = Value {
                    name: name.into(),
                    unit: unit.into(),
                };
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

    fn event(&mut self, parser: usize, event: &Seen, stack: &[u32]) {
        let name = self.numbers[parser].names[event.name.index()];
        if self.event.is_none() {
            let text = self.recording.text(name);
            self.is_clock = text.starts_with("cpu-clock") || text.starts_with("task-clock");
        }
        if *self.event.get_or_insert(name) != name {
            // Events of different kinds cannot be added up.
            self.other_events += 1;
            return;
        }
        let (first, last) = self.times.unwrap_or((event.time, event.time));
        self.times = Some((first, last.max(event.time)));
        let offset = event.time - first;
        if self.options.from.is_some_and(|from| offset < from)
            || self.options.to.is_some_and(|to| offset >= to)
        {
            return;
        }
        if let Some(period) = event.period.filter(|_| self.is_clock) {
            self.periods = (self.periods.0.saturating_add(period), self.periods.1 + 1);
        }
        let weight = match self.weighs {
            true => event.period.unwrap_or(1),
            false => 1,
        };
        let (pid, tid) = match self.options.names_only {
            true => (0, 0),
            false => (event.pid, event.tid),
        };
        let key = RowKey {
            task: TaskKey {
                comm: self.numbers[parser].names[event.comm.index()],
                pid,
                tid,
            },
            stack: self.stack(parser, stack),
            end: None,
            reason: NameId::NONE,
            idle: false,
            waker: 0,
            labels: 0,
        };
        self.recording.add(&key, 1, &[weight]);
    }

    fn stack(&mut self, parser: usize, leaf_first: &[u32]) -> u32 {
        let Numbers { frames, ids, .. } = &mut self.numbers[parser];
        let recording = &mut self.recording;
        self.stack.clear();
        self.stack.extend(leaf_first.iter().map(|number| {
            let id = &mut ids[*number as usize];
            if *id == NOT_YET {
                *id = recording.frame_id(&frames[*number as usize]);
            }
            *id
        }));
        self.stacks.id(&self.stack, recording)
    }

    pub(super) fn end(mut self) -> Recording {
        let name = self.event.map(|name| self.recording.text(name).to_owned());
        let header = &mut self.recording.header;
        if let Some((first, last)) = self.times
            && header.duration_ns == 0
        {
            header.duration_ns = ((last - first) * 1e9) as u64;
        }
        let mean_ns = match self.weighs {
            true => None,
            false => self.periods.0.checked_div(self.periods.1),
        };
        if header.values[0].unit == "count" {
            header.period_ns = self.period_ns.or(mean_ns).unwrap_or(0);
        }
        let Some(name) = name else {
            return self.recording;
        };
        if !self.weighs {
            header.tool = format!("perf {name}");
        }
        if self.other_events > 0 {
            header.comments.push(format!(
                "{} of other kinds than {name} left out",
                crate::units::counted(self.other_events, "events"),
            ));
        }
        self.recording
    }
}
