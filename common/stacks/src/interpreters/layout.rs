//! `struct python_layout` of the BPF side.

use python::{CHECKSUM_BYTES, Entries, Instruction, NONE, Runtime};

/// Its length.
pub(super) const BYTES: usize = 40;
/// `PYTHON_OBJECT_BYTES`: what is read of an object is less.
const MOST_OBJECT: usize = 128;

/// An interpreter as the BPF side walks it. `None`: its objects are larger than that side reads.
pub(super) fn encode(runtime: &Runtime) -> Option<[u8; BYTES]> {
    let layout = &runtime.layout;
    let small = |offset: u16| u8::try_from(offset).ok();
    let bytes = |bytes: usize| u8::try_from(bytes).ok().filter(|_| bytes < MOST_OBJECT);
    let has_mark = layout.mark != NONE;
    let mut words = Words(Vec::with_capacity(BYTES));
    words.put(runtime.code_type.to_ne_bytes());
    words.put((!u64::from(layout.code_tag)).to_ne_bytes());
    words.put(runtime.state_at().to_ne_bytes());
    words.put(layout.frame.to_ne_bytes());
    words.put(layout.frame_in_holder.to_ne_bytes());
    words.put([
        small(layout.code)?,
        small(layout.previous)?,
        small(layout.instruction)?,
        u8::from(layout.instruction_form != Instruction::Address),
        if has_mark { small(layout.mark)? } else { 0 },
        layout.marked,
        match layout.entries {
            Entries::All => 0,
            Entries::Marked => 1,
            Entries::Between => 2,
        },
        bytes(layout.frame_span())?,
        bytes(usize::from(layout.checksum) + CHECKSUM_BYTES)?,
        small(layout.object_type)?,
        small(layout.checksum / 4)?,
    ]);
    words.0.resize(BYTES, 0);
    words.0.try_into().ok()
}

struct Words(Vec<u8>);

impl Words {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend(bytes);
    }
}
