//! The interpreter's own account of its code objects: the table of members that `PyCode_Type` has in every version.

use crate::layout::{Entries, Layout, NONE};
use crate::memory::{Memory, fill, half_in, word, word_in};
use crate::refusal::Refusal;
use crate::version::Version;

/// Places in a type: bytes of its objects, and the address of the members' table.
const BASIC_SIZE: u64 = 32;
const MEMBERS: u64 = 240;
/// Bytes of an entry, and places in it: the name's address, the field's offset.
const ENTRY: usize = 40;
const NAME: u16 = 0;
const OFFSET: u16 = 16;
/// More than any version has.
const MAX_ENTRIES: usize = 32;
/// Bytes of a name that are read.
const MAX_NAME: usize = 24;

/// Members of a code object and where the layout has them.
pub(crate) fn expected(layout: &Layout) -> [(&'static str, u16); 7] {
    let lines = match layout.positions {
        crate::Positions::Steps => "co_lnotab",
        crate::Positions::Ranges | crate::Positions::Locations => "co_linetable",
    };
    let name = match layout.entries {
        Entries::All => "co_name",
        Entries::Marked | Entries::Between => "co_qualname",
    };
    // The fields that are summed, of which `checksum` is the beginning, lie in a row with these.
    let arguments = match layout.entries {
        Entries::Between => layout.checksum - 16,
        Entries::All | Entries::Marked => layout.checksum,
    };
    [
        ("co_argcount", arguments),
        ("co_kwonlyargcount", arguments + 8),
        ("co_firstlineno", layout.first_line),
        ("co_filename", layout.file),
        (name, layout.name),
        (lines, layout.lines),
        ("co_flags", flags(layout)),
    ]
}

fn flags(layout: &Layout) -> u16 {
    match layout.entries {
        Entries::All => layout.checksum + 20,
        Entries::Marked => layout.checksum - 8,
        Entries::Between => layout.checksum - 20,
    }
}

/// Refuses a build whose code objects or frames are not those of the layout.
pub(crate) fn check(
    memory: &impl Memory,
    (code_type, frame_type): (u64, u64),
    version: Version,
    layout: &Layout,
) -> Result<(), Refusal> {
    let unread = |error| Refusal::Unread("the interpreter's types", error);
    let other = |field| Refusal::OtherBuild { version, field };
    let size = word(memory, code_type.wrapping_add(BASIC_SIZE)).map_err(unread)?;
    if size != u64::from(layout.instructions) {
        return Err(other("the size of code objects"));
    }
    let size = word(memory, frame_type.wrapping_add(BASIC_SIZE)).map_err(unread)?;
    if layout.frame_bytes != NONE && size != u64::from(layout.frame_bytes) {
        return Err(other("the size of frames"));
    }
    let table = word(memory, code_type.wrapping_add(MEMBERS)).map_err(unread)?;
    let mut left: Vec<_> = expected(layout).into();
    for index in 0..MAX_ENTRIES {
        let mut entry = [0; ENTRY];
        let at = table.wrapping_add((index * ENTRY) as u64);
        fill(memory, at, &mut entry).map_err(unread)?;
        let name = word_in(&entry, NAME);
        if name == 0 || left.is_empty() {
            break;
        }
        let mut bytes = [0; MAX_NAME];
        let read = memory.read(name, &mut bytes).unwrap_or_default();
        let bytes = &bytes[..read.min(MAX_NAME)];
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        let is_it = |(name, _): &(&str, u16)| name.as_bytes() == &bytes[..length];
        if let Some(found) = left.iter().position(is_it) {
            let (name, offset) = left.swap_remove(found);
            if half_in(&entry, OFFSET) != u32::from(offset) {
                return Err(other(name));
            }
        }
    }
    left.first().map_or(Ok(()), |(name, _)| Err(other(name)))
}
