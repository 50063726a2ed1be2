//! Other processes' memory.

use std::io;

use crate::pages;

/// Reads into `buffer`, of at most 4096 bytes, what process `tgid` has at `address`; returns how many bytes there were.
///
/// # Errors
///
/// When the process is gone, may not be read, or has nothing there; when its memory does not answer, now or before.
pub fn read(tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    pages::read(tgid, address, buffer)
}
