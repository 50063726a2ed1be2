//! Polls that began when nobody looked. Which descriptor they are for is in the thread's memory, which the BPF side reads only of a
//! thread that is current: it asks for that word of the others.

use anyhow::{Context, Result};
use bpf::offcputime::types::polled_word;
use foreign::pages::Kept;
use libbpf_rs::{MapCore, MapFlags};

use crate::offcputime::open::next_open;

/// Reads the words that an iterator asks for, whose records `waiting` are, and tells them to the BPF side by its map `polled_words`.
pub(crate) fn tell(mut waiting: &[u8], words: &impl MapCore) -> Result<()> {
    let mut asked = Vec::new();
    while let Some((open, _)) = next_open(&mut waiting)? {
        if open.poll_memory != 0 {
            asked.push(open);
        }
    }
    let memory = Kept::default();
    for process in asked.chunk_by(|one, other| one.tgid == other.tgid) {
        let addresses = process.iter().map(|open| open.poll_memory);
        memory.fetch(process[0].tgid, addresses);
        for open in process {
            let mut word = [0; 8];
            let read = memory.read(open.tgid, open.poll_memory, &mut word);
            if read.ok() != Some(word.len()) {
                continue;
            }
            let told = polled_word {
                word: u64::from_ne_bytes(word),
                since: open.since,
            };
            // SAFETY: plain data is as many initialised bytes.
            let bytes = unsafe { plain::as_bytes(&told) };
            words
                .update(&open.tid.to_ne_bytes(), bytes, MapFlags::ANY)
                .context("tell BPF programs of a poll")?;
        }
    }
    Ok(())
}
