//! Reads one perf ring buffer.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

const HEADER: usize = 8;

/// A mapped ring; the kernel writes behind `data_head`, we read behind `data_tail`.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    page: usize,
    /// Data bytes, a power of two.
    size: usize,
    /// Reused copy of what was unread, so that records that wrap are in one piece.
    unread: Vec<u8>,
    _event: OwnedFd,
}

impl Ring {
    /// Maps the ring of `event` with at most `pages` data pages (a power of two), fewer where the lock limit is low.
    pub(super) fn map(event: OwnedFd, pages: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let mut pages = pages;
        loop {
            // SAFETY: a fresh shared mapping of an fd that we own; the kernel checks the length.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    page * (1 + pages),
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    event.as_raw_fd(),
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                let base = NonNull::new(base.cast()).expect("mmap never returns null");
                return Ok(Self {
                    base,
                    page,
                    size: page * pages,
                    unread: Vec::new(),
                    _event: event,
                });
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EPERM | libc::ENOMEM) if pages > 1 => pages /= 2,
                _ => return Err(error),
            }
        }
    }

    /// Hands every unread record to `take` and frees its space. Returns whether the ring made no sense.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let head = self.head().load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed);
        let length = head.wrapping_sub(tail);
        if length == 0 {
            return false;
        }
        let sane = usize::try_from(length).is_ok_and(|l| l <= self.size);
        if sane {
            self.copy_out(tail, usize::try_from(length).expect("just compared"));
        }
        // Release: the kernel may overwrite what was copied only after the copy.
        self.tail().store(head, Ordering::Release);
        !sane || !split(&self.unread, &mut take)
    }

    fn copy_out(&mut self, tail: u64, length: usize) {
        let start = usize::try_from(tail & (self.size as u64 - 1)).expect("below the ring's size");
        let first = length.min(self.size - start);
        self.unread.clear();
        // SAFETY: the data area is `size` bytes behind the first page; both pieces lie inside it, and the kernel
        // writes nothing between data_tail and data_head.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            self.unread
                .extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            self.unread
                .extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
    }

    fn head(&self) -> &AtomicU64 {
        self.field(std::mem::offset_of!(perf_event_mmap_page, data_head))
    }

    fn tail(&self) -> &AtomicU64 {
        self.field(std::mem::offset_of!(perf_event_mmap_page, data_tail))
    }

    fn field(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: an aligned u64 inside the control page, which lives as long as self; both sides access it atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the range that map() got; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.size) };
    }
}

/// Cuts a run of records at their sizes; false when a size is impossible (the rest is dropped).
fn split(mut bytes: &[u8], take: &mut impl FnMut(&[u8])) -> bool {
    while bytes.len() >= HEADER {
        let size = usize::from(u16::from_ne_bytes([bytes[6], bytes[7]]));
        if size < HEADER || size > bytes.len() {
            return false;
        }
        let (record, rest) = bytes.split_at(size);
        take(record);
        bytes = rest;
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8]) -> (bool, Vec<usize>) {
        let mut sizes = Vec::new();
        let sane = split(bytes, &mut |r: &[u8]| sizes.push(r.len()));
        (sane, sizes)
    }

    #[test]
    fn records_are_cut_at_their_sizes() {
        let mut bytes = vec![0; 40];
        bytes[6..8].copy_from_slice(&16u16.to_ne_bytes());
        bytes[22..24].copy_from_slice(&24u16.to_ne_bytes());
        assert_eq!(cut(&bytes), (true, vec![16, 24]));
    }

    #[test]
    fn impossible_sizes_end_the_run() {
        assert_eq!(cut(&[0; 16]), (false, vec![]), "size 0 must not loop");
        assert_eq!(cut(&[0xff; 16]), (false, vec![]));
        assert_eq!(cut(&[0; 3]), (false, vec![]));
        assert_eq!(cut(&[]), (true, vec![]));
    }
}
