//! Text in pieces that end between events, so that several can be read beside each other.

use std::io::Read;

use super::lines::is_header;
use crate::read::ReadError;

/// Most bytes without the end of an event; a stack may have 16,384 frames of long names.
const LONGEST: usize = 64 << 20;

/// A file's text, piece by piece.
pub(super) struct Pieces<R> {
    input: R,
    /// Bytes of a piece; where no event ends in them, it is a longer one.
    size: usize,
    /// What was read behind the last piece.
    rest: Vec<u8>,
    /// Where `rest` begins in the file.
    start: u64,
    /// Everything was read.
    pub(super) has_ended: bool,
}

impl<R: Read> Pieces<R> {
    pub(super) fn new(input: R, size: usize) -> Self {
        Self {
            input,
            size,
            rest: Vec::new(),
            start: 0,
            has_ended: false,
        }
    }

    /// The next piece, in the memory of a former one; `None` at the end.
    pub(super) fn next(&mut self, mut text: Vec<u8>) -> Result<Option<Vec<u8>>, ReadError> {
        if self.has_ended {
            return Ok(None);
        }
        text.clear();
        text.append(&mut self.rest);
        let mut wanted = self.size;
        let end = loop {
            self.fill(&mut text, wanted)?;
            if self.has_ended {
                break text.len();
            }
            if let Some(end) = last_end(&text) {
                break end;
            }
            if text.len() >= LONGEST {
                return Err(ReadError::at("no event ends within 64 MiB", self.start));
            }
            wanted = 2 * text.len();
        };
        self.rest.extend_from_slice(&text[end..]);
        text.truncate(end);
        self.start += end as u64;
        Ok((end > 0).then_some(text))
    }

    fn fill(&mut self, text: &mut Vec<u8>, wanted: usize) -> Result<(), ReadError> {
        let missing = wanted.saturating_sub(text.len()) as u64;
        let read = self.input.by_ref().take(missing).read_to_end(text);
        let read = read.map_err(|err| ReadError::io(&err, self.start + text.len() as u64))?;
        self.has_ended = (read as u64) < missing;
        Ok(())
    }
}

/// The last place between events: behind an empty line, or before one that can be neither of a stack nor a remark in it.
fn last_end(text: &[u8]) -> Option<usize> {
    let mut newlines = memchr::memrchr_iter(b'\n', text);
    newlines.find_map(|newline| {
        let line = text[..newline].strip_suffix(b"\r");
        let is_empty = line.unwrap_or(&text[..newline]).ends_with(b"\n");
        (is_empty || begins_event(&text[newline + 1..])).then_some(newline + 1)
    })
}

/// Whether the first line can only be an event's, with or without blanks before the thread's name.
fn begins_event(text: &[u8]) -> bool {
    match text.first() {
        None | Some(b'\t' | b'#' | b'\r' | b'\n') => false,
        Some(b' ') => memchr::memchr(b'\n', text)
            .is_some_and(|end| is_header(&String::from_utf8_lossy(&text[..end]))),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, size: usize) -> Vec<String> {
        let mut pieces = Pieces::new(text.as_bytes(), size);
        let next = || pieces.next(Vec::new()).expect("short events");
        let texts = std::iter::from_fn(next).map(|piece| String::from_utf8(piece).expect("text"));
        texts.collect()
    }

    #[test]
    fn a_piece_ends_between_events() {
        let text = "# remark\n a 1 1.5: x:\n\t10 f (m)\n# in it\n\t20 g (m)\n\n   b 2 2.5: x:\r\n\r\nc 3 3.5: x: \nd 4 4.5: x:";
        // Where no event ends, twice as much is read.
        let events = [
            "# remark\n",
            " a 1 1.5: x:\n\t10 f (m)\n# in it\n\t20 g (m)\n\n",
            "   b 2 2.5: x:\r\n\r\nc 3 3.5: x: \n",
            "d 4 4.5: x:",
        ];
        assert_eq!(pieces(text, 1), events);
        assert_eq!(pieces(text, 1000), [text]);
        for size in 1..text.len() {
            let found = pieces(text, size);
            assert_eq!(found.concat(), text);
            assert!(found.iter().all(|piece| !piece.is_empty()), "{found:?}");
        }
        assert!(pieces("", 10).is_empty());
        // Without stacks there are no empty lines.
        let event = "            app  7 [000] 1.5: 1 cpu-clock:  10 f (m)\n";
        let found = pieces(&event.repeat(9), 60);
        assert!(found.len() > 3 && found.iter().all(|piece| piece.len() % event.len() == 0));
    }

    #[test]
    fn endless_events_are_refused() {
        let endless = std::io::repeat(b'\t');
        let err = Pieces::new(endless, 10).next(Vec::new()).map(|_| ());
        assert_eq!(
            err.expect_err("too long").to_string(),
            "byte 0: no event ends within 64 MiB"
        );
    }
}
