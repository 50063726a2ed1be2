//! Folded lines: those of bcc, of FlameGraph's stackcollapse scripts and of inferno, annotations included.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::io::BufRead;

use foldhash::quality::RandomState;

use super::{DEEPEST, Lines, ReadError, ReadOptions};
use crate::frame::FrameKind;
use crate::recording::{
    FrameKey, Header, Map, NameId, Recording, RowKey, StackId, TaskKey, Unchained, Value,
};

/// Frames of the line before, so that what two lines share is looked up once: sorted lines share most.
#[derive(Default)]
struct Previous {
    line: Vec<u8>,
    /// Where each frame of it ends, what it is, and the stack so far, where that was needed.
    frames: Vec<(usize, FrameKey, Option<StackId>)>,
    /// Number of frames and key that they make, when the whole stack is the same.
    key: Option<RowKey>,
}

/// Reads all lines. The first frame is the thread's name, as in all tools that fold.
pub(super) fn read(
    input: &mut impl BufRead,
    options: &ReadOptions,
) -> Result<Recording, ReadError> {
    let (unit, factor) = unit(options.unit.as_deref().unwrap_or_default())?;
    let name = match unit {
        "ns" => "time",
        "bytes" => "bytes",
        "" | "count" => "samples",
        _ => "value",
    };
    let value = Value {
        name: name.into(),
        unit: unit.into(),
    };
    let mut recording = Recording::new(Header {
        values: vec![value],
        has_counts: matches!(unit, "" | "count"),
        ..Header::default()
    });
    let mut previous = Previous::default();
    // Rows of stacks that were there before. By two hashes of 64 bits with seeds that nobody knows, instead of the text.
    let mut seen: Map<[u64; 2], u32> = Map::default();
    let hashers = [RandomState::default(), RandomState::default()];
    let mut lines = Lines::new(input);
    let (mut stacks, mut differences) = (0_u64, 0_u64);
    while lines.advance()? {
        let line = lines.line().trim_ascii();
        if line.is_empty() || line.starts_with(b"# ") || line == b"#" {
            continue;
        }
        let (stack, number) = split(line).ok_or_else(|| lines.error("no number at the end"))?;
        let value = parse(number, factor).ok_or_else(|| {
            let number = String::from_utf8_lossy(number);
            lines.error(format!(
                "not a value below 2^64: {}",
                crate::escape::terminal(&number)
            ))
        })?;
        stacks += 1;
        differences += u64::from(has_number(stack));
        let count = if factor == 1 && unit != "ns" {
            value
        } else {
            0
        };
        let row = match seen.get(&hash(&hashers, stack)) {
            Some(row) => *row,
            None => {
                let key = previous.key(stack, &mut recording);
                let row = recording.row(&key.map_err(|what| lines.error(what))?);
                seen.insert(hash(&hashers, stack), row);
                row
            }
        };
        recording.add_to(row, count, &[value]);
    }
    // One such name may end in a number.
    if stacks > 1 && differences == stacks {
        return Err(ReadError::whole(
            "is a difference of two profiles, with two numbers a line: flame diff compares the profiles themselves; \
             a number that is part of a name has no blank before it",
        ));
    }
    Ok(recording)
}

fn hash(hashers: &[RandomState; 2], stack: &[u8]) -> [u64; 2] {
    hashers.each_ref().map(|hasher| hasher.hash_one(stack))
}

/// A unit as recordings have it, and what values are multiplied by.
fn unit(name: &str) -> Result<(&'static str, u64), ReadError> {
    Ok(match name {
        "" => ("", 1),
        "count" | "samples" => ("count", 1),
        "ns" => ("ns", 1),
        "us" => ("ns", 1_000),
        "ms" => ("ns", 1_000_000),
        "s" => ("ns", 1_000_000_000),
        "bytes" => ("bytes", 1),
        _ => {
            return Err(ReadError::whole(
                "no such unit; use count, ns, us, ms, s or bytes",
            ));
        }
    })
}

/// Stack and number, at the last blank.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memrchr2(b' ', b'\t', line)?;
    let number = &line[at + 1..];
    let stack = line[..at].trim_ascii_end();
    (number.first()?.is_ascii_digit() && !stack.is_empty()).then_some((stack, number))
}

/// Looks whether a line has another number before its last.
fn has_number(stack: &[u8]) -> bool {
    split(stack).is_some_and(|(_, number)| parse(number, 1).is_some())
}

/// Fractions are allowed, as flamegraph.pl allows them, and rounded in the unit that is kept.
fn parse(number: &[u8], factor: u64) -> Option<u64> {
    let text = std::str::from_utf8(number).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part: f64 = format!("0.{fraction}").parse().unwrap_or(0.0);
    whole
        .checked_mul(factor)?
        .checked_add((part * factor as f64).round() as u64)
}

impl Previous {
    fn key(&mut self, stack: &[u8], recording: &mut Recording) -> Result<RowKey, &'static str> {
        if let Some(key) = self.key.filter(|_| self.line == stack) {
            return Ok(key);
        }
        let same = self
            .line
            .iter()
            .zip(stack)
            .take_while(|(a, b)| a == b)
            .count();
        // A frame is the same if its separator is too.
        let kept = self.frames.partition_point(|(end, ..)| *end < same);
        self.frames.truncate(kept);
        let mut start = self.frames.last().map_or(0, |(end, ..)| end + 1);
        while start <= stack.len() {
            let end = memchr::memchr(b';', &stack[start..]).map_or(stack.len(), |at| start + at);
            let frame = if self.frames.is_empty() {
                FrameKey::named(recording.names.id(&text(&stack[start..end])))
            } else {
                frame(&text(&stack[start..end]), recording)
            };
            self.frames.push((end, frame, None));
            start = end + 1;
            if self.frames.len() > DEEPEST {
                return Err("more than 16,384 frames");
            }
        }
        self.line.clear();
        self.line.extend_from_slice(stack);
        let found = if self.is_plain(recording) {
            Unchained {
                stack: self.push(recording),
                ..Unchained::default()
            }
        } else {
            let frames: Vec<FrameKey> = self.frames[1..]
                .iter()
                .map(|(_, frame, _)| *frame)
                .collect();
            recording.unchain(&frames)
        };
        let key = found.key(task(self.frames[0].1.name, recording));
        self.key = Some(key);
        Ok(key)
    }

    /// Whether all frames are functions.
    fn is_plain(&self, recording: &Recording) -> bool {
        let special = [NameId::DASH, NameId::DASHES, NameId::IDLE];
        let is_special = |frame: &FrameKey| special.contains(&frame.name);
        let second = self
            .frames
            .get(1)
            .map(|(_, frame, _)| recording.text(frame.name));
        !second.is_some_and(|name| name.starts_with('['))
            && !self.frames.iter().any(|(_, frame, _)| is_special(frame))
    }

    /// The stack of all frames but the first.
    fn push(&mut self, recording: &mut Recording) -> StackId {
        self.frames[1..]
            .iter_mut()
            .fold(0, |parent, (_, frame, stack)| {
                *stack.get_or_insert_with(|| recording.push(parent, *frame))
            })
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A frame and what its annotation says.
fn frame(text: &str, recording: &mut Recording) -> FrameKey {
    let annotations = [
        ("_[k]", FrameKind::Kernel, false),
        ("_[i]", FrameKind::User, true),
        ("_[j]", FrameKind::Jit, false),
        ("_[w]", FrameKind::Unknown, false),
    ];
    let found = annotations
        .iter()
        .find_map(|(mark, kind, inlined)| Some((text.strip_suffix(mark)?, *kind, *inlined)));
    let (name, kind, inlined) = found.unwrap_or((text, FrameKind::Unknown, false));
    FrameKey {
        kind,
        inlined,
        ..FrameKey::named(recording.names.id(name))
    }
}

/// `comm`, `comm-PID` or `comm-PID/TID`, as `stackcollapse-perf.pl` writes them. The last two need all of their digits: a
/// thread may be called `worker-1`, and is, unless there is a slash.
fn task(comm: NameId, recording: &mut Recording) -> TaskKey {
    let whole = TaskKey {
        comm,
        pid: 0,
        tid: 0,
    };
    let parts = |text: &str| {
        let (rest, tid) = text.rsplit_once('/')?;
        let (comm, pid) = rest.rsplit_once('-')?;
        let pid = if pid == "?" { 0 } else { pid.parse().ok()? };
        Some((comm.to_owned(), pid, tid.parse().ok()?))
    };
    let Some((comm, pid, tid)) = parts(recording.text(comm)) else {
        return whole;
    };
    recording.header.shows_threads = true;
    TaskKey {
        comm: recording.names.id(&comm),
        pid,
        tid,
    }
}
