//! The output of iterators that note what they have told: each task is shown once.

use std::io::Read;

use anyhow::{Context, Result};
use libbpf_rs::{Iter, Link};

/// Bytes of one read. The kernel shows tasks until it has as many, in a buffer of 32 KiB; where that overflows it shows the last one
/// again (`bpf_seq_read`), whose program has noted by then that it was told. The longest record has to fit in behind these.
const PART: usize = 16 << 10;

/// Runs the iterator behind `link` to its end and returns its output.
pub(crate) fn read(link: Option<&Link>) -> Result<Vec<u8>> {
    let link = link.context("the BPF iterator is not attached")?;
    let mut listing = Iter::new(link).context("create BPF iterator")?;
    let (mut output, mut part) = (Vec::new(), vec![0; PART]);
    loop {
        match listing.read(&mut part).context("read BPF iterator")? {
            0 => return Ok(output),
            bytes => output.extend_from_slice(&part[..bytes]),
        }
    }
}
