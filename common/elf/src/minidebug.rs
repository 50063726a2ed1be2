//! `.gnu_debugdata`: whether it unpacks to something reasonable.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use xz2::bufread::XzDecoder;
use xz2::stream::Stream;

/// Most bytes that it may unpack to.
const MAX_MINI_DEBUG: u64 = 256 << 20;
/// Memory that an honest one needs to unpack (xz -9 takes 65 MiB).
const MAX_XZ_MEMORY: u64 = 128 << 20;

/// Unpacks once into nothing.
pub fn unpacks_within(file: &File, range: Range<u64>) -> bool {
    let Ok(stream) = Stream::new_stream_decoder(MAX_XZ_MEMORY, 0) else {
        return false;
    };
    let unpacked = XzDecoder::new_stream(BufReader::new(Slice { file, range }), stream);
    io::copy(&mut unpacked.take(MAX_MINI_DEBUG + 1), &mut io::sink())
        .is_ok_and(|n| n <= MAX_MINI_DEBUG)
}

/// Part of a file, read without moving its position.
struct Slice<'a> {
    file: &'a File,
    range: Range<u64>,
}

impl Read for Slice<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left =
            usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..length], self.range.start)?;
        self.range.start += read as u64;
        Ok(read)
    }
}
