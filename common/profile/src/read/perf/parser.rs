//! What lines say, piece by piece: events with their stacks, whoever adds them up.

use super::frames::Frames;
use super::lines::{Event, header, is_header, stack_line};
use crate::read::{DEEPEST, LONGEST_LINE};
use crate::recording::{FrameKey, NameId, Recording};

/// An event; names are numbers of its parser.
pub(super) struct Seen {
    pub(super) comm: NameId,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// s, of the machine's clock.
    pub(super) time: f64,
    pub(super) period: Option<u64>,
    pub(super) name: NameId,
    /// How many of [`Batch::stack_frames`] are this event's.
    pub(super) depth: u32,
}

/// What a piece holds, in its order.
pub(super) enum Item {
    Event(Seen),
    /// A line behind `# usekit: `.
    Remark(String),
}

/// What is wrong with a piece, and where in it.
pub(super) struct Wrong {
    pub(super) what: String,
    /// Lines before it.
    pub(super) lines: u64,
    /// Bytes before its line.
    pub(super) offset: usize,
}

/// What a piece said.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// The stacks of all events one after the other, each leaf → root; numbers of the parser.
    pub(super) stack_frames: Vec<u32>,
    /// Names and frames that its parser had not seen before, in the order of their numbers.
    pub(super) new_names: Vec<String>,
    pub(super) new_frames: Vec<FrameKey>,
    pub(super) lines: u64,
    pub(super) wrong: Option<Wrong>,
    pub(super) piece: Vec<u8>,
}

/// Reads pieces; knows the names and frames of those before.
pub(super) struct Parser {
    frames: Frames,
    /// Holds names and frames, no samples.
    known: Recording,
    /// How many of the names were handed on.
    names: usize,
    /// The event whose lines are read.
    event: Option<Seen>,
    /// Lines of a stack may follow.
    is_inside: bool,
    /// Of the event, as printed: leaf → root.
    stack: Vec<u32>,
}

impl Parser {
    pub(super) fn new(names_only: bool) -> Self {
        Self {
            frames: Frames::new(names_only),
            known: Recording::default(),
            names: 0,
            event: None,
            is_inside: false,
            stack: Vec::new(),
        }
    }

    pub(super) fn parse(&mut self, piece: Vec<u8>) -> Batch {
        let mut batch = Batch::default();
        let known_frames = self.known.frames().len();
        let mut start = 0;
        while start < piece.len() {
            let end = memchr::memchr(b'\n', &piece[start..]).map_or(piece.len(), |at| start + at);
            if let Err(what) = self.line(&piece[start..end], &mut batch) {
                batch.wrong = Some(Wrong {
                    what,
                    lines: batch.lines,
                    offset: start,
                });
                break;
            }
            batch.lines += 1;
            start = end + 1;
        }
        self.finish(&mut batch);
        self.is_inside = false;
        let names = &self.known.names;
        batch.new_names = names.from(self.names).map(str::to_owned).collect();
        self.names = names.len();
        batch.new_frames = self.known.frames()[known_frames..].to_vec();
        batch.piece = piece;
        batch
    }

    fn line(&mut self, line: &[u8], batch: &mut Batch) -> Result<(), String> {
        if line.len() > LONGEST_LINE {
            return Err("line of more than 16 MiB".into());
        }
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
            if self.stack.len() >= DEEPEST {
                return Err("more than 16,384 frames".into());
            }
            self.stack.push(self.frames.id(&frame, &mut self.known));
            return Ok(());
        }
        let text = String::from_utf8_lossy(line);
        if text.trim().is_empty() {
            self.is_inside = false;
            self.finish(batch);
            return Ok(());
        }
        if let Some(remark) = text.strip_prefix('#') {
            // perf's own say nothing that is needed, and may be many.
            if let Some(remark) = remark.trim().strip_prefix("usekit: ") {
                batch.items.push(Item::Remark(remark.to_owned()));
            }
            return Ok(());
        }
        let Some(event) = header(&text) else {
            return Err(format!(
                "neither an event nor a line of its stack: {}",
                crate::escape::terminal(&text.chars().take(60).collect::<String>())
            ));
        };
        self.finish(batch);
        self.is_inside = true;
        self.begin(&event);
        Ok(())
    }

    fn begin(&mut self, event: &Event<'_>) {
        let names = &mut self.known.names;
        self.event = Some(Seen {
            comm: names.id(event.comm),
            pid: event.pid,
            tid: event.tid,
            time: event.time,
            period: event.period,
            name: names.id(event.name),
            depth: 0,
        });
        // Without a stack, the function stands behind the event's name.
        let frame = stack_line(event.rest.as_bytes());
        if let Some(frame) = frame.filter(|frame| !frame.module.is_empty()) {
            self.stack.push(self.frames.id(&frame, &mut self.known));
        }
    }

    fn finish(&mut self, batch: &mut Batch) {
        let Some(mut event) = self.event.take() else {
            return;
        };
        self.frames.set_modules(&mut self.stack, &mut self.known);
        event.depth = self.stack.len() as u32;
        batch.items.push(Item::Event(event));
        batch.stack_frames.append(&mut self.stack);
    }
}
