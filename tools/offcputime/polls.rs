//! Polls that began when nobody looked. Which descriptors they are for is in the thread's memory, which the BPF side reads only of a
//! thread that is current: it asks for those words of the others.

use anyhow::Result;
use bpf::offcputime::types::{open_phase, polled_words};
use foreign::pages::Kept;
use libbpf_rs::{MapCore, MapFlags};

use crate::offcputime::open::next_open;

/// Reads the words that an iterator asks for, whose records `waiting` are, and tells them to the BPF side by its map `polled_before`.
pub(crate) fn tell(mut waiting: &[u8], told: &impl MapCore) -> Result<()> {
    let mut asked = Vec::new();
    while let Some((open, _)) = next_open(&mut waiting)? {
        if open.poll.address != 0 {
            asked.push(open);
        }
    }
    let memory = Kept::default();
    for process in asked.chunk_by(|one, other| one.tgid == other.tgid) {
        let addresses = process.iter().map(|open| open.poll.address);
        memory.fetch(process[0].tgid, addresses);
        for open in process {
            let Some(words) = words(open, &memory) else {
                continue;
            };
            // SAFETY: plain data is as many initialised bytes.
            let bytes = unsafe { plain::as_bytes(&words) };
            // Else it is a poll of which nobody knows what for.
            let _ = told.update(&open.tid.to_ne_bytes(), bytes, MapFlags::ANY);
        }
    }
    Ok(())
}

/// `None`: they cannot be read.
fn words(open: &open_phase, memory: &Kept) -> Option<polled_words> {
    let mut words = polled_words {
        since: open.since,
        ..polled_words::default()
    };
    for (at, word) in (0..open.poll.words).zip(&mut words.words) {
        let mut bytes = [0; 8];
        let address = open.poll.address.wrapping_add(8 * u64::from(at));
        let read = memory.read(open.tgid, address, &mut bytes).ok()?;
        (read == bytes.len()).then_some(())?;
        *word = u64::from_ne_bytes(bytes);
    }
    Some(words)
}
