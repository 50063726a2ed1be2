use std::collections::VecDeque;
use std::io::{self, Cursor, Read};

use super::{PART, read_in_parts};

/// The kernel's buffer.
const BUFFER: usize = 32 << 10;

/// The longest record that fits in behind a part.
const LONGEST: usize = BUFFER - PART;

/// An iterator's file, as `bpf_seq_read` is: objects are shown until the buffer has what was asked for; the one that overflows it is
/// taken back, and shown again at the next read.
struct Shown {
    lengths: VecDeque<usize>,
    shows: usize,
    rest: Vec<u8>,
}

impl Shown {
    fn new(lengths: impl IntoIterator<Item = usize>) -> Self {
        Self {
            lengths: lengths.into_iter().collect(),
            shows: 0,
            rest: Vec::new(),
        }
    }
}

impl Read for Shown {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        while self.rest.len() < part.len() {
            let Some(&length) = self.lengths.front() else {
                break;
            };
            self.shows += 1;
            if self.rest.len() + length >= BUFFER {
                break;
            }
            self.rest.resize(self.rest.len() + length, 0);
            self.lengths.pop_front();
        }
        let bytes = part.len().min(self.rest.len());
        part[..bytes].copy_from_slice(&self.rest[..bytes]);
        self.rest.drain(..bytes);
        Ok(bytes)
    }
}

#[test]
fn each_object_is_shown_once() {
    for length in [0, 1, 8, 88, 1_000, 4_099, LONGEST] {
        let mut file = Shown::new([length; 1_009]);
        let output = read_in_parts(&mut file).unwrap();
        assert_eq!(output.len(), 1_009 * length);
        assert_eq!(file.shows, 1_009, "{length} bytes each");
    }
}

#[test]
fn larger_reads_would_show_some_twice() {
    let mut file = Shown::new([88; 1_009]);
    let mut whole = vec![0; 1 << 20];
    while file.read(&mut whole).unwrap() > 0 {}
    assert_eq!(file.shows, 1_009 + 2, "88 KiB overflow 32 KiB twice");
}

/// Fails once before each of its reads, as the kernel does after a million objects that wrote nothing.
struct Pausing(Cursor<Vec<u8>>, bool, io::ErrorKind);

impl Read for Pausing {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(self.2.into());
        }
        self.0.read(part)
    }
}

#[test]
fn a_pause_is_not_the_end() {
    let bytes: Vec<u8> = (0..40_000_u32).flat_map(u32::to_ne_bytes).collect();
    for kind in [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted] {
        let file = Pausing(Cursor::new(bytes.clone()), false, kind);
        assert_eq!(read_in_parts(file).unwrap(), bytes);
    }
}

#[test]
fn other_errors_are_told() {
    let kind = io::ErrorKind::OutOfMemory;
    let error = read_in_parts(Pausing(Cursor::default(), false, kind)).unwrap_err();
    assert_eq!(error.kind(), kind);
}
