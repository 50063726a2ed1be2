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

/// Rows of the stacks that were there before.
#[derive(Default)]
struct Rows {
    previous: Previous,
    /// By two hashes of 64 bits with seeds that nobody knows, instead of the text.
    seen: Map<[u64; 2], u32>,
    hashers: [RandomState; 2],
}

impl Rows {
    fn of(&mut self, stack: &[u8], recording: &mut Recording) -> Result<u32, &'static str> {
        let hash = self.hashers.each_ref();
        let hash = hash.map(|hasher| hasher.hash_one(stack));
        if let Some(row) = self.seen.get(&hash) {
            return Ok(*row);
        }
        let key = self.previous.key(stack, recording)?;
        let row = recording.row(&key);
        self.seen.insert(hash, row);
        Ok(row)
    }
}

/// Reads all lines. The first frame is the thread's name, as in all tools that fold.
pub(super) fn read(
    input: &mut impl BufRead,
    options: &ReadOptions,
) -> Result<Recording, ReadError> {
    let (unit, factor) = unit(options.unit.as_deref().unwrap_or_default())?;
    let mut recording = Recording::new(header(unit));
    let is_count = factor == 1 && unit != "ns";
    let mut rows = Rows::default();
    let mut values = Values {
        factor,
        rest: 0.0,
        rounded: 0,
    };
    let mut lines = Lines::new(input);
    let (mut stacks, mut paths, mut differences) = (0_u64, 0_u64, 0_u64);
    while lines.advance()? {
        let line = lines.line().trim_ascii();
        if line.is_empty() || line.starts_with(b"# ") || line == b"#" {
            continue;
        }
        let found = split(line).ok_or_else(|| "no number at the end".to_owned());
        let found = found.and_then(|(stack, number)| {
            let (value, after) = values.next(number)?;
            let row = rows.of(stack, &mut recording)?;
            values = after;
            Ok((stack, row, value))
        });
        match found {
            Ok((stack, row, value)) => {
                stacks += 1;
                paths += u64::from(stack.contains(&b';'));
                differences += u64::from(has_number(stack));
                recording.add_to(row, if is_count { value } else { 0 }, &[value]);
            }
            Err(what) => {
                let left_out = &mut recording.header.left_out;
                left_out.add_malformed(|| lines.error(what).to_string());
            }
        }
    }
    recording.header.left_out.rounded = values.rounded;
    // Prose may have a line that ends in a number.
    let left_out = &recording.header.left_out;
    if left_out.malformed > stacks && paths == 0 {
        return Err(ReadError::unreadable("folded profile", left_out));
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

fn header(unit: &str) -> Header {
    let name = match unit {
        "ns" => "time",
        "bytes" => "bytes",
        "" | "count" => "samples",
        _ => "value",
    };
    let value = Value::new(name, unit);
    Header {
        values: vec![value],
        has_counts: matches!(unit, "" | "count"),
        ..Header::default()
    }
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
    split(stack).is_some_and(|(_, number)| parse(number).is_some())
}

/// A line with a path of functions and a number, as no prose has it.
pub(super) fn is_path(line: &[u8]) -> bool {
    split(line).is_some_and(|(stack, number)| stack.contains(&b';') && parse(number).is_some())
}

/// A number's whole part and its fraction, which flamegraph.pl allows, too.
fn parse(number: &[u8]) -> Option<(u64, f64)> {
    let text = std::str::from_utf8(number).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let part = format!("0.{fraction}").parse().unwrap_or(0.0);
    Some((whole.parse().ok()?, part))
}

/// Part of a unit that is lost where a fraction is multiplied.
const INEXACT: f64 = 1e-6;

/// Values in the unit that is kept.
#[derive(Clone, Copy)]
struct Values {
    factor: u64,
    /// The rest that rounding has left of the numbers before, so that their sum is right however many have a fraction.
    rest: f64,
    /// Numbers that had such a fraction.
    rounded: u64,
}

impl Values {
    /// The value of a number, and what is left behind it if its line counts.
    fn next(&self, number: &[u8]) -> Result<(u64, Self), String> {
        let value = parse(number).and_then(|(whole, part)| {
            let own = part * self.factor as f64;
            let part = own + self.rest;
            let rounded = (part + 0.5).floor();
            let value = whole
                .checked_mul(self.factor)?
                .checked_add(rounded as u64)?;
            let after = Self {
                rest: part - rounded,
                rounded: self.rounded + u64::from((own - own.round()).abs() > INEXACT),
                ..*self
            };
            Some((value, after))
        });
        value.ok_or_else(|| {
            let number = String::from_utf8_lossy(number);
            format!(
                "not a value below 2^64: {}",
                crate::escape::terminal(&number)
            )
        })
    }
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
                // The next line has nothing in common with what was found of this one.
                self.frames.clear();
                self.line.clear();
                self.key = None;
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
    let whole = TaskKey::named(comm);
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
    recording.task(&comm, pid, tid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_line_leaves_its_fraction_nowhere() {
        let deep = "f;".repeat(DEEPEST + 1);
        let too_large = "18446744073709551615.9";
        let text = format!("{deep} 0.4\na;b {too_large}\na;b 1.4\n");
        let recording = read(&mut text.as_bytes(), &ReadOptions::default()).expect("a stack");
        assert_eq!(
            (recording.total(), recording.header.left_out.malformed),
            (1, 2)
        );
    }
}
