//! Other tools' formats that are not read: known by their beginnings, so that a refusal names them and says what helps.

use memchr::memmem;

use super::formats::{FORMATS, Shape};
use super::perf;

impl Shape {
    fn is_of(&self, start: &[u8]) -> bool {
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        let text = text.trim_ascii_start();
        // Numbers of a binary file may look like text.
        if !matches!(self, Self::Magic(_)) && start.contains(&0) {
            return false;
        }
        match self {
            Self::Magic(magic) => start.starts_with(magic),
            Self::Starts(first) => text
                .get(..first.len())
                .is_some_and(|own| own.eq_ignore_ascii_case(first.as_bytes())),
            Self::Head(part) => {
                let line =
                    split(text).find(|line| !line.trim_ascii().is_empty() && line[0] != b'#');
                line.is_some_and(|line| {
                    !line.contains(&b';') && memmem::find(line, part.as_bytes()).is_some()
                })
            }
            Self::Lines(all) => all.iter().all(|first| {
                split(text).any(|line| line.trim_ascii_start().starts_with(first.as_bytes()))
            }),
            Self::Keys(all) => {
                let is_json = text.starts_with(b"{") || text.starts_with(b"[");
                let has = |key: &String| memmem::find(text, format!("\"{key}\"").as_bytes());
                is_json && all.iter().all(|key| has(key).is_some())
            }
            Self::Counted(start, mark) => are_counted(text, start, mark),
            Self::Attributes(names) => is_attributes(text, names),
            Self::Weighed => is_weighed(text),
            Self::PerfFrames => are_perf_frames(start),
            Self::PerfNameless => are_nameless(start),
        }
    }
}

fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Frames that begin so and have the mark, and the number of their stack on a line of its own.
fn are_counted(text: &[u8], start: &str, mark: &str) -> bool {
    let mut frames = 0;
    for line in split(text) {
        let line = line.trim_ascii();
        if line.contains(&b';') {
            return false;
        }
        if !line.is_empty() && line.iter().all(u8::is_ascii_digit) {
            return frames > 0;
        }
        let is_frame =
            line.starts_with(start.as_bytes()) && memmem::find(line, mark.as_bytes()).is_some();
        frames += usize::from(is_frame);
    }
    false
}

/// `main<tab>class=warm`
fn is_attributes(text: &[u8], names: &[String]) -> bool {
    let line = split(text).next().unwrap_or_default();
    let attribute = line.split(|byte| *byte == b'\t').nth(1);
    attribute.is_some_and(|attribute| {
        let mut names = names
            .iter()
            .map(|name| attribute.strip_prefix(name.as_bytes()));
        names.any(|rest| rest.is_some_and(|rest| rest.starts_with(b"=")))
    })
}

/// `42 3 a.b.f(C.java:7)`
fn is_weighed(text: &[u8]) -> bool {
    let line = split(text).next().unwrap_or_default().trim_ascii_end();
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let mut is_number = || {
        words
            .next()
            .is_some_and(|word| word.iter().all(u8::is_ascii_digit))
    };
    let is_frame = line.ends_with(b")") && line.contains(&b'(') && !line.contains(&b';');
    is_number() && is_number() && is_frame
}

/// Looks at the first lines; the last one may be cut.
fn are_perf_frames(start: &[u8]) -> bool {
    let lines = split(start).filter(|line| !line.trim_ascii().is_empty());
    let is_frame = |line: &[u8]| {
        line[0].is_ascii_whitespace() && is_perf_frame(line) && line.trim_ascii().contains(&b' ')
    };
    let mut lines = lines.take(3).peekable();
    lines.peek().is_some() && lines.all(is_frame)
}

/// An address, and perhaps a name behind it.
fn is_perf_frame(line: &[u8]) -> bool {
    let mut words = line.trim_ascii().splitn(2, |byte| *byte == b' ');
    let address = words.next().unwrap_or_default();
    address.len() >= 4 && address.iter().all(u8::is_ascii_hexdigit)
}

/// Lines among which an event that can be read would be.
const HEADS: usize = 8;

/// `redis-server 1.5: cycles:`, which is no event that can be read, nor is one of the next, and its stack.
fn are_nameless(start: &[u8]) -> bool {
    let lines = split(start).filter(|line| !line.trim_ascii().is_empty() && line[0] != b'#');
    let lines: Vec<&[u8]> = lines.collect();
    let is_stack = |line: &[u8]| line[0] == b'\t';
    let is_nameless = |line: &[u8]| {
        !line.contains(&b';') && perf::header(&String::from_utf8_lossy(line)).is_none()
    };
    let mut heads = lines.iter().filter(|line| !is_stack(line)).take(HEADS);
    match lines[..] {
        [head, frame, ..] if !is_stack(head) && is_stack(frame) && is_perf_frame(frame) => {
            heads.all(|line| is_nameless(line))
        }
        _ => false,
    }
}

/// Why a file that begins so is refused; `None`: it is of no format that is known here.
pub(super) fn refusal(start: &[u8]) -> Option<String> {
    let (_, name, remedy) = FORMATS.iter().find(|(shape, ..)| shape.is_of(start))?;
    Some(format!("is {name}, which is not read: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_not_refused() {
        let own: [&[u8]; 9] = [
            b"a;b`c;d 5\n10\n",
            b"# tool: offcputime\nredis;main;read 12\n",
            b"{\"tool\":\"profile\",\"values\":[],\"stacks\":[]}",
            b"swapper     0 [000] 1.5: 1 cpu-clock: \n\tffffffff a ([kernel])\n\n",
            b"main 5",
            b"gmond;main;read 5",
            // Locations of a pprof profile, as DTrace's frames and their number.
            b"\x0a\x04\x08\x60\x00\x0a\x32\x0a",
            b"--- a/file\n+++ b/file\n",
            b"",
        ];
        for start in own {
            assert_eq!(refusal(start), None, "{}", String::from_utf8_lossy(start));
        }
    }
}
