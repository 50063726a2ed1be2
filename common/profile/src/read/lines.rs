//! Lines with their offsets, of bounded length, read in place.

use std::io::{self, Read};
use std::ops::Range;

use super::ReadError;

/// Longest line that is looked at, bytes.
const LONGEST_LINE: usize = 16 << 20;
/// How much is read at once; it stays in the caches.
const BLOCK: usize = 64 << 10;

/// A file's lines, one at a time.
pub(super) struct Lines<R> {
    input: R,
    /// Grows only where a line is longer.
    buffer: Vec<u8>,
    filled: usize,
    /// Offset of the buffer's first byte in the file.
    base: u64,
    /// The line in `buffer`, without its end.
    line: Range<usize>,
    next: usize,
    /// Counted from 1.
    number: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; BLOCK],
            filled: 0,
            base: 0,
            line: 0..0,
            next: 0,
            number: 0,
        }
    }

    /// Moves on; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool, ReadError> {
        self.number += 1;
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.next..self.filled];
            if let Some(at) = memchr::memchr(b'\n', &unread[searched..]) {
                self.take(searched + at, 1);
                return Ok(true);
            }
            searched = unread.len();
            if searched >= LONGEST_LINE {
                self.take(searched, 0);
                return Err(self.error("line of more than 16 MiB"));
            }
            if !self.fill()? {
                self.take(searched, 0);
                return Ok(searched > 0);
            }
        }
    }

    /// Makes the next bytes the line, and skips its end.
    fn take(&mut self, length: usize, end: usize) {
        let line = &self.buffer[self.next..self.next + length];
        let returns = line.iter().rev().take_while(|byte| **byte == b'\r');
        self.line = self.next..self.next + length - returns.count();
        self.next += length + end;
    }

    /// Reads more behind what is unread; `false` at the end.
    fn fill(&mut self) -> Result<bool, ReadError> {
        self.buffer.copy_within(self.next..self.filled, 0);
        self.base += self.next as u64;
        self.filled -= self.next;
        self.next = 0;
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(read) => {
                    self.filled += read;
                    return Ok(read > 0);
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(ReadError::io(&err, self.base + self.filled as u64)),
            }
        }
    }

    /// The line, without its end.
    pub(super) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// Something is wrong with the line.
    pub(super) fn error(&self, what: impl Into<String>) -> ReadError {
        ReadError::at_line(what, self.number, self.base + self.line.start as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{BLOCK, LONGEST_LINE, Lines};

    /// Gives a byte at a time, as slow pipes do.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    fn all(input: impl Read) -> Vec<String> {
        let mut lines = Lines::new(input);
        let mut found = Vec::new();
        while lines.advance().expect("short lines") {
            found.push(String::from_utf8_lossy(lines.line()).into_owned());
        }
        found
    }

    #[test]
    fn lines_are_those_between_the_ends_however_they_arrive() {
        let text = "a\r\n\n b\nlast";
        assert_eq!(all(text.as_bytes()), ["a", "", " b", "last"]);
        assert_eq!(all(Slow(text.as_bytes())), ["a", "", " b", "last"]);
        let long = format!("{}\nb\n", "x".repeat(3 * BLOCK));
        assert_eq!(
            all(long.as_bytes()),
            long.lines().collect::<Vec<_>>().as_slice()
        );
    }

    #[test]
    fn what_is_wrong_has_its_line_and_offset() {
        let text = format!("{}\nb\n", "x".repeat(2 * BLOCK));
        let mut lines = Lines::new(text.as_bytes());
        assert!(lines.advance().is_ok() && lines.advance().is_ok());
        assert_eq!(
            lines.error("odd").to_string(),
            format!("line 2 (byte {}): odd", 2 * BLOCK + 1)
        );
        let endless = std::io::repeat(b'x').take(2 * LONGEST_LINE as u64);
        let err = Lines::new(endless).advance().expect_err("too long");
        assert_eq!(err.to_string(), "line 1 (byte 0): line of more than 16 MiB");
    }
}
