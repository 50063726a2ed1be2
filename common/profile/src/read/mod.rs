//! Profiles out of files. Files are other people's: what is wrong with one is an error that says where.

mod error;
mod fields;
mod folded;
mod formats;
mod json;
mod limits;
mod lines;
mod others;
pub mod perf;
mod pprof;

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use crate::recording::{DEEPEST, Recording};
pub use error::ReadError;
use lines::Lines;

/// Longest pprof document, uncompressed: it is read as a whole, and may be a small file that unpacks to a large one.
const LARGEST_DOCUMENT: u64 = 1 << 30;
/// Bytes that a format is recognised by.
const START: u64 = 64 << 10;
/// Most remarks and build IDs that are kept of a file.
const MOST_REMARKS: usize = 100_000;

/// What the reader is told about a file.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Unit of folded values, whose format has none: `count`, `ns`, `us`, `ms`, `s`, `bytes`.
    pub unit: Option<String>,
    /// Only what happened from this time on, s from the first event (`perf script` text).
    pub from: Option<f64>,
    /// Only what happened before this time.
    pub to: Option<f64>,
    /// The kind of events that counts (`perf script` text); `None`: the first one's.
    pub event: Option<String>,
    /// What will be done with it needs functions and thread names only: addresses, and which thread of a name it was, are
    /// forgotten while reading. A real capture has several addresses per function, so this decides how much memory it takes.
    pub names_only: bool,
}

/// Formats that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// One stack a line.
    Folded,
    /// Our JSON.
    Json,
    /// pprof's protocol buffer.
    Pprof,
    /// Text of `perf script`.
    Perf,
    /// Another tool's, and why it is refused.
    Other(String),
}

/// Reads a profile of any of the formats, compressed by gzip or not; the content decides, not the name.
///
/// # Errors
///
/// When it is none of them, is damaged, or cannot be read.
pub fn read(input: impl Read, options: &ReadOptions) -> Result<Recording, ReadError> {
    let (start, mut input) = peeked(input)?;
    if start.starts_with(&[0x1f, 0x8b]) {
        let (start, mut plain) = peeked(MultiGzDecoder::new(input))?;
        return read_plain(&start, &mut plain, options);
    }
    read_plain(&start, &mut input, options)
}

fn read_plain(
    start: &[u8],
    input: &mut impl BufRead,
    options: &ReadOptions,
) -> Result<Recording, ReadError> {
    let kind = recognise(start);
    if let Some(Kind::Other(why)) = kind {
        return Err(ReadError::whole(why));
    }
    if (options.from.is_some() || options.to.is_some()) && kind != Some(Kind::Perf) {
        return Err(ReadError::whole(
            "has no times to choose from; only perf script text has them",
        ));
    }
    if options.event.is_some() && kind != Some(Kind::Perf) {
        return Err(ReadError::whole(
            "has no events to choose from; only perf script text has them",
        ));
    }
    match kind {
        Some(Kind::Folded) => folded::read(input, options),
        Some(Kind::Json) => json::read(input),
        Some(Kind::Pprof) => pprof::read(&whole(input)?),
        Some(Kind::Perf) => perf::read(input, options),
        None | Some(Kind::Other(_)) => Err(ReadError::whole(unknown(start))),
    }
}

/// The reason why a file of no format that is known is no profile.
fn unknown(start: &[u8]) -> &'static str {
    // Remarks, comments and sources have no mark of their own.
    let is_text = std::str::from_utf8(start).map_or_else(|err| err.error_len().is_none(), |_| true);
    if is_text && !start.contains(&0) {
        "is not a profile but text: no line is a stack with a number or an event of perf script"
    } else {
        "is not a profile: neither text, nor pprof, nor of a format that is known"
    }
}

/// The beginning, enough to recognise a format by, and a reader of everything, the beginning included.
fn peeked<R: Read>(mut input: R) -> Result<(Vec<u8>, impl BufRead), ReadError> {
    let mut start = Vec::new();
    let read = input.by_ref().take(START).read_to_end(&mut start);
    read.map_err(|err| ReadError::io(&err, start.len() as u64))?;
    let rest = BufReader::with_capacity(64 << 10, input);
    Ok((start.clone(), Cursor::new(start).chain(rest)))
}

fn whole(input: &mut impl BufRead) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let read = Bounded::new(input).read_to_end(&mut bytes);
    read.map_err(|err| ReadError::io(&err, bytes.len() as u64))?;
    Ok(bytes)
}

/// Of what is read as a whole no more than the memory for it.
struct Bounded<R> {
    input: R,
    left: u64,
}

impl<R> Bounded<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            left: LARGEST_DOCUMENT,
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or_else(|| {
            io::Error::other("more than 1 GiB, and this format is read as a whole")
        })?;
        Ok(read)
    }
}

/// The format of a file that begins so; an empty file is a folded one without lines.
fn recognise(start: &[u8]) -> Option<Kind> {
    let text = start.trim_ascii_start();
    let head = &text[..text.len().min(4096)];
    if head.is_empty() && start.iter().all(u8::is_ascii_whitespace) {
        return Some(Kind::Folded);
    }
    let is_object = head.starts_with(b"{");
    if is_object && memchr::memmem::find(head, b"\"tool\"").is_some() {
        return Some(Kind::Json);
    }
    if let Some(why) = others::refusal(start) {
        return Some(Kind::Other(why));
    }
    if is_object {
        return Some(Kind::Json);
    }
    if is_pprof(start) {
        return Some(Kind::Pprof);
    }
    let lines = text.split(|byte| *byte == b'\n');
    let mut lines = lines.filter(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"));
    let line = lines.next()?;
    // The blank at its end is a part of it.
    if let Some(event) = perf::header(&String::from_utf8_lossy(line)) {
        // With a thread's ID alone it may be folded text.
        let is_certain = event.time.is_some() || !event.name.is_empty() || event.pid > 0;
        let has_stack = || {
            lines
                .clone()
                .next()
                .is_some_and(|next| next.starts_with(b"\t"))
        };
        if is_certain || has_stack() {
            return Some(Kind::Perf);
        }
    }
    let line = line.trim_ascii_end();
    let mut lines = lines.map(<[u8]>::trim_ascii_end);
    let last = line.rsplit(u8::is_ascii_whitespace).next()?;
    let [begins, ends] = [last.first()?, last.last()?].map(u8::is_ascii_digit);
    let is_number = begins && (ends || last.ends_with(b"."));
    // A line that is longer than what was looked at.
    let is_cut = line.len() >= 4096 && !text.contains(&b'\n') && !text.contains(&0);
    if is_number || is_cut {
        return Some(Kind::Folded);
    }
    // It may be a line that is damaged.
    lines.find_map(|line| {
        let event = || perf::header(&String::from_utf8_lossy(line)).and_then(|event| event.time);
        match folded::is_path(line) {
            true => Some(Kind::Folded),
            false => event().map(|_| Kind::Perf),
        }
    })
}

/// A Profile begins with the tag of any of its fields, and soon has bytes that no text has.
fn is_pprof(start: &[u8]) -> bool {
    let Some((tag, rest)) = start.split_first() else {
        return false;
    };
    let is_field = (1..=15).contains(&(tag >> 3)) && matches!(tag & 7, 0 | 2);
    let head = &rest[..rest.len().min(4096)];
    let has_control = head
        .iter()
        .any(|byte| *byte < b' ' && !b"\t\n\r".contains(byte));
    let is_utf8 = std::str::from_utf8(head).map_or_else(|err| err.error_len().is_none(), |_| true);
    is_field && (has_control || !is_utf8 && *tag < b' ')
}
