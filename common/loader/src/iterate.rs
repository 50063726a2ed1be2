//! BPF iterators: run a program once for every task and read what it wrote.

use std::io::{self, ErrorKind, Read};

use anyhow::{Context, Result};
use libbpf_rs::{Iter, Link};

/// Finds the targets anew when processes have moved between cgroups.
#[derive(Debug, Default)]
pub struct Reseeding {
    seen: u64,
}

impl Reseeding {
    /// `moves`: the BPF side's count of moves; `seed`: its iterator over all tasks. Returns whether there were some.
    ///
    /// # Errors
    ///
    /// As for [`run`].
    pub fn follow(&mut self, moves: u64, seed: Option<&Link>) -> Result<bool> {
        let have_moved = std::mem::replace(&mut self.seen, moves) != moves;
        if have_moved {
            run(seed)?;
        }
        Ok(have_moved)
    }
}

/// Bytes of one read. The kernel shows tasks until it has as many, in a buffer of 32 KiB; where that overflows it shows the last one
/// again (`bpf_seq_read`), whose program has counted it, or noted that it was told, by then. The longest record has to fit in behind
/// these.
const PART: usize = 16 << 10;

/// Runs the iterator behind `link` to its end and returns its output. Each task is shown once.
///
/// # Errors
///
/// When the iterator cannot be created or read.
pub fn run(link: Option<&Link>) -> Result<Vec<u8>> {
    let link = link.context("the BPF iterator is not attached")?;
    let iterator = Iter::new(link).context("create BPF iterator")?;
    read_in_parts(iterator).context("read BPF iterator")
}

fn read_in_parts(mut from: impl Read) -> io::Result<Vec<u8>> {
    let (mut output, mut part) = (Vec::new(), vec![0; PART]);
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(output),
            Ok(bytes) => output.extend_from_slice(&part[..bytes]),
            // The kernel pauses after a million objects without a word.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
