//! BPF iterators: run a program once for every task and read what it wrote.

use std::io::Read;

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

/// Runs the iterator behind `link` to its end and returns its output.
///
/// # Errors
///
/// When the iterator cannot be created or read.
pub fn run(link: Option<&Link>) -> Result<Vec<u8>> {
    let link = link.context("the BPF iterator is not attached")?;
    let mut output = Vec::new();
    Iter::new(link)
        .context("create BPF iterator")?
        .read_to_end(&mut output)
        .context("read BPF iterator")?;
    Ok(output)
}
