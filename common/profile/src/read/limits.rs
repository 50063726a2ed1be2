//! How much of a JSON file is held at once: a small one may unpack to a stack without end.

use std::cell::Cell;
use std::io::{self, BufRead, Read};

/// A stack: its frames and its waker's, as many as there may be, with names of 1 KiB and of their files.
const LARGEST_STACK: u64 = 64 << 20;
/// All that an object says beside its stacks; lists of small numbers take sixteen times as much in memory.
const LARGEST_REST: u64 = 16 << 20;
/// Stacks that come before it is said what their values are; they have to be kept. In memory they take ten times as much.
const LARGEST_EARLY: u64 = 256 << 20;

/// Where reading is, and how far it may go on.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) offset: Cell<u64>,
    left: Cell<u64>,
}

impl Limits {
    /// What follows is an object; returns what was left before.
    pub(super) fn begin_object(&self) -> u64 {
        self.left.replace(LARGEST_REST)
    }

    /// What follows is a stack.
    pub(super) fn begin_stack(&self) -> u64 {
        self.left.replace(LARGEST_STACK)
    }

    /// What follows are stacks that have to wait.
    pub(super) fn begin_early(&self) -> u64 {
        self.left.replace(LARGEST_EARLY)
    }

    /// What follows is not kept.
    pub(super) fn begin_ignored(&self) -> u64 {
        self.left.replace(u64::MAX)
    }

    /// It goes on as before.
    pub(super) fn resume(&self, left: u64) {
        self.left.set(left);
    }
}

/// Knows how far reading has come, and ends it where too much would be held.
pub(super) struct Limited<'a, R> {
    pub(super) input: &'a mut R,
    pub(super) limits: &'a Limits,
}

impl<R: BufRead> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let Limits { offset, left } = self.limits;
        offset.set(offset.get() + read as u64);
        let more = left.get().checked_sub(read as u64);
        left.set(more.ok_or_else(|| {
            io::Error::other("more than 64 MiB for a stack, or 16 MiB beside stacks")
        })?);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stack_has_the_room_anew_and_what_is_beside_them_goes_on_with_what_it_had() {
        let limits = Limits::default();
        let mut endless = io::BufReader::new(io::repeat(b'x'));
        let mut limited = Limited {
            input: &mut endless,
            limits: &limits,
        };
        let mut read = |bytes: u64| io::copy(&mut limited.by_ref().take(bytes), &mut io::sink());
        limits.begin_object();
        assert!(read(LARGEST_REST - 1000).is_ok());
        let left = limits.begin_ignored();
        assert!(read(2 * LARGEST_EARLY).is_ok());
        limits.resume(left);
        let left = limits.begin_stack();
        for _ in 0..3 {
            assert!(read(LARGEST_STACK).is_ok());
            limits.begin_stack();
        }
        limits.resume(left);
        assert!(read(1000).is_ok());
        assert!(read(1).is_err());
    }
}
