//! The table of offsets that an interpreter has of itself from 3.13 on, at the beginning of `_PyRuntime`.
//!
//! The table's own layout is another one in each minor version, so its version word is looked at first.

use crate::layout::{HOLDER, IS_LOCKED, Layout};
use crate::memory::{Memory, fill, word_in};
use crate::refusal::Refusal;
use crate::version::Version;

const COOKIE: &[u8; 8] = b"xdebugpy";
/// Bytes of the table that are read: those of 3.14 that are looked at end before.
const BYTES: usize = 704;
/// Places in the table, in words of eight bytes.
const VERSION: u16 = 1;
const FREE_THREADED: u16 = 2;

/// The places in the table where the groups begin, and fields whose place in their group is not the same in all versions; in words.
struct Groups {
    runtime: u16,
    interpreter: u16,
    threads_head: u16,
    lock: u16,
    thread: u16,
    frame: u16,
    code: u16,
    object: u16,
    unicode: u16,
}

impl Groups {
    fn of(version: Version) -> Option<Self> {
        match version.minor {
            13 => Some(Self {
                runtime: 3,
                interpreter: 6,
                threads_head: 9,
                lock: 14,
                thread: 19,
                frame: 28,
                code: 34,
                object: 44,
                unicode: 67,
            }),
            14 => Some(Self {
                runtime: 3,
                interpreter: 6,
                threads_head: 9,
                lock: 15,
                thread: 22,
                frame: 31,
                code: 39,
                object: 50,
                unicode: 77,
            }),
            _ => None,
        }
    }
}

/// The numbers that the interpreter at `runtime` tells, and what its version has besides.
pub(crate) fn read(
    memory: &impl Memory,
    runtime: u64,
    version: Version,
    known: Layout,
) -> Result<Layout, Refusal> {
    let Some(groups) = Groups::of(version) else {
        return Ok(known);
    };
    let mut table = [0; BYTES];
    let unread = |error| Refusal::Unread("the interpreter's table of offsets", error);
    fill(memory, runtime, &mut table).map_err(unread)?;
    let other = |field| Refusal::OtherBuild { version, field };
    let said = Version::of_word(word_in(&table, VERSION * 8));
    if !table.starts_with(COOKIE) || said != Some(version) {
        return Err(other("the table of offsets"));
    }
    if word_in(&table, FREE_THREADED * 8) != 0 {
        return Err(Refusal::FreeThreaded(version));
    }
    let at = |place: u16| u16::try_from(word_in(&table, place * 8)).ok();
    let offset = |place: u16| at(place).ok_or(other("an offset"));
    let layout = Layout {
        interpreters: offset(groups.runtime + 2)?,
        next_interpreter: offset(groups.interpreter + 2)?,
        threads: offset(groups.threads_head)?,
        lock: offset(groups.lock)?,
        next_thread: offset(groups.thread + 2)?,
        frame: offset(groups.thread + 4)?,
        thread_id: offset(groups.thread + 5)?,
        native_thread_id: offset(groups.thread + 6)?,
        previous: offset(groups.frame + 1)?,
        code: offset(groups.frame + 2)?,
        instruction: offset(groups.frame + 3)?,
        mark: offset(groups.frame + 5)?,
        file: offset(groups.code + 1)?,
        name: offset(groups.code + 3)?,
        lines: offset(groups.code + 4)?,
        first_line: offset(groups.code + 5)?,
        instructions: offset(groups.code + 9)?,
        object_type: offset(groups.object + 1)?,
        ascii: offset(groups.unicode + 3)?,
        ..known
    };
    // The table has the lock that an interpreter may have within itself.
    let lock = offset(groups.lock + 1)?;
    let holder = offset(groups.lock + 4)?.wrapping_sub(lock);
    let is_locked = offset(groups.lock + 3)?.wrapping_sub(lock);
    if (holder, is_locked) != (HOLDER, IS_LOCKED) {
        return Err(other("the global lock"));
    }
    // All else is in known places behind what it has.
    let argument_count = offset(groups.code + 6)?;
    let is_known = layout.first_line == layout.checksum
        && argument_count == layout.checksum - 16
        && layout.ascii == known.ascii
        && layout.thread_span() <= 1024
        && layout.frame_span() <= 256
        && layout.code_span() <= 1024;
    is_known.then_some(layout).ok_or(other("an offset"))
}
