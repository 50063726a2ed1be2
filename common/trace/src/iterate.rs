//! BPF iterators: run a program once for every task and read what it wrote.

use std::io::Read;

use anyhow::{Context, Result};
use libbpf_rs::{Iter, Link};

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
