//! Locks that functions have taken by `with`: until such a block is left, the lock's `__exit__` lies on the stack of values of the frame.
//! Up to 3.13 it is bound to the lock or the condition, from 3.14 on that lies behind it.
//!
//! The stack has stale values above its end, and the interpreter keeps the end in a register while it runs. But it has to know how deep the
//! stack is where an exception is handled, and what lies below that is alive: before 3.11 the frame has a stack of blocks that says so, from
//! then on the code has a table (`Objects/exception_handling_notes.txt` of CPython).

use std::ops::ControlFlow;

use crate::code;
use crate::layout::{Entries, Layout};
use crate::lines::UNIT;
use crate::memory::{Memory, fill, word, word_in};
use crate::objects::{FIRST_WITH_BYTES, Lock, TAG, VALUE, half, plain, type_name};
use crate::runtime::Runtime;
use crate::text;
use crate::walk::{each_frame, place};

/// Frames that are looked at, the innermost ones; values of each, the outermost ones; and of all of them.
const MAX_FRAMES: usize = 128;
const MAX_VALUES: usize = 32;
const MAX_ALL_VALUES: usize = 512;

/// Places in frames before 3.11: the address of the values, and the number of blocks behind the instruction, which the blocks follow.
const VALUES: u64 = 64;
const BLOCKS: u16 = 8;
const FIRST_BLOCK: u64 = 8;
/// Bytes of a block, and place of the depth in it.
const BLOCK: u64 = 12;
const LEVEL: u64 = 8;
/// `CO_MAXBLOCKS`
const MAX_BLOCKS: u64 = 20;

/// Places in a code object from 3.11 on: its table of exceptions, and, behind the first line, the number of variables in a frame, which
/// lie before its values.
const EXCEPTIONS: u64 = 40;
const VARIABLES: u64 = 4;
/// A frame has no more variables, and a function's table is smaller.
const MAX_VARIABLES: u32 = 1 << 16;
const MAX_TABLE: usize = 1 << 16;
/// Bits of a byte of the table: of a number, another byte follows, an entry begins.
const BITS: u8 = 63;
const MORE: u8 = 64;

/// Place in a frame from 3.14 on: the end of the stack of values, which is kept there during calls.
const END: u16 = 64;
/// Values before that end of which one is the lock that is waited for: it, its function, and what that is called with.
const MAX_ARGUMENTS: usize = 5;

const EXIT: &str = "__exit__";
const TAKING: [&str; 3] = ["__enter__", "acquire", "acquire_lock"];
/// The function of a condition that takes its lock, from 3.11 on; and the one that gives the lock away meanwhile: before 3.11 code has the bare
/// name, which `Event` and `Barrier` have a function of, too.
const EXIT_OF_CONDITION: &str = "Condition.__exit__";
const WAITS: [&str; 2] = ["Condition.wait", "wait"];
const WAITS_OF_OTHERS: [&str; 2] = ["Event", "Barrier"];
const FILE: &str = "threading.py";
/// Characters of such names.
const MAX_NAME: usize = 32;
const MAX_FILE: usize = 4096;

/// A lock that a thread has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// Address of its semaphore, which waits are for, or, from 3.14 on, of its byte.
    pub address: u64,
    /// The lock says that it is the thread's, as an `RLock` does.
    pub is_owner: bool,
}

impl Runtime {
    /// Locks (`threading.Lock` and `RLock`, and those of a `Condition`) in whose `with` blocks the functions of a thread are, of the innermost
    /// function first, as far as `is_wanted` says so of their addresses. What cannot be read is left out, and so is what a condition that is
    /// waited for has given away.
    pub fn locks_within(
        &self,
        memory: &impl Memory,
        thread_state: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Vec<Within> {
        let (mut locks, mut released) = (Vec::new(), Vec::new());
        let mut left = MAX_ALL_VALUES;
        let own = thread_state.wrapping_add(self.layout.thread_id.into());
        let own = word(memory, own).unwrap_or(0);
        let each = |frame: u64, bytes: &[u8]| {
            if self.layout.entries == Entries::Between && self.layout.is_marked(bytes) {
                return Ok(ControlFlow::Continue(()));
            }
            match self.waits(memory, frame, bytes) {
                Wait::None => {}
                Wait::Releases(lock) => released.push(lock),
                // An event or a barrier, for which the thread is in its condition's function.
                Wait::Unknown if !released.is_empty() => {}
                // Nobody knows which of all that lies outwards is given away.
                Wait::Unknown => return Ok(ControlFlow::Break(())),
            }
            let values = self.values(memory, frame, bytes, left).unwrap_or_default();
            left -= values.len();
            let behind = values.iter().skip(1).chain([&0]);
            for (value, next) in values.iter().zip(behind) {
                let lock = self.taken(memory, *value, *next);
                let is_own = |owner: u64| owner != 0 && owner == own;
                if let Some(lock) = lock.filter(|lock| is_wanted(lock.address))
                    && lock.owner.is_none_or(is_own)
                    && !released.contains(&lock.address)
                {
                    locks.push(Within {
                        address: lock.address,
                        is_owner: lock.owner.is_some(),
                    });
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        // Frames up to one that cannot be read have been seen.
        let _ = each_frame(memory, self, thread_state, MAX_FRAMES, each);
        locks
    }

    /// Address of the byte of the lock that a thread waits for, where locks have one: a futex of the thread's own says nothing of it.
    pub fn lock_waited_for(&self, memory: &impl Memory, thread_state: u64) -> Option<u64> {
        if self.version.minor < FIRST_WITH_BYTES {
            return None;
        }
        let mut values = [0; MAX_ARGUMENTS * VALUE as usize];
        let innermost = |_, bytes: &[u8]| {
            let end = word_in(bytes, END);
            fill(memory, end.wrapping_sub(values.len() as u64), &mut values)?;
            Ok(ControlFlow::Break(()))
        };
        each_frame(memory, self, thread_state, 1, innermost).ok()?;
        let values: Vec<u64> = values.chunks_exact(VALUE as usize).map(plain).collect();
        let mut calls = values.windows(2).rev();
        calls.find_map(|call| {
            let callee = self.callee(memory, call[0], call[1])?;
            let takes = callee.code.is_none() && TAKING.contains(&callee.name.as_str());
            let lock = takes.then(|| self.as_lock(memory, callee.on))??;
            Some(lock.address)
        })
    }

    /// The lock whose `__exit__` a value is, or whose condition's; `next`: the value behind it.
    fn taken(&self, memory: &impl Memory, value: u64, next: u64) -> Option<Lock> {
        let callee = self.callee(memory, value, next)?;
        match callee.code {
            _ if callee.name != EXIT => None,
            None => self.as_lock(memory, callee.on),
            Some(code) => {
                let name = self.text(memory, code, self.layout.name, MAX_NAME)?;
                let is_conditions = name == EXIT_OF_CONDITION || name == EXIT;
                let is_it = is_conditions && self.is_of_threading(memory, code)?;
                is_it.then(|| self.lock_of_condition(memory, callee.on))?
            }
        }
    }

    /// A string of a code object.
    fn text(&self, memory: &impl Memory, code: u64, place: u16, most: usize) -> Option<String> {
        let at = word(memory, code.wrapping_add(place.into())).ok()?;
        text::read(memory, &self.layout, at, most).ok()
    }

    /// Tells if a function is of the library's module. `None`: it cannot be read.
    fn is_of_threading(&self, memory: &impl Memory, code: u64) -> Option<bool> {
        let file = self.text(memory, code, self.layout.file, MAX_FILE)?;
        Some(file.rsplit('/').next() == Some(FILE))
    }

    /// Tells if a frame is of `Condition.wait`, which takes the lock again at its end, and which one it has given away.
    fn waits(&self, memory: &impl Memory, frame: u64, bytes: &[u8]) -> Wait {
        let layout = &self.layout;
        let code = word_in(bytes, layout.code) & !u64::from(layout.code_tag);
        let name = self.text(memory, code, layout.name, MAX_NAME);
        let is_it = name.and_then(|name| match WAITS.contains(&name.as_str()) {
            true => self.is_of_threading(memory, code),
            false => Some(false),
        });
        match is_it {
            None => return Wait::Unknown,
            Some(false) => return Wait::None,
            Some(true) => {}
        }
        let owner = word(memory, frame.wrapping_add(variables_at(layout)));
        let owner = owner.unwrap_or(0) & !TAG;
        if let Some(lock) = self.lock_of_condition(memory, owner) {
            return Wait::Releases(lock.address);
        }
        // They wait for a condition of theirs, in a function of that.
        let is_others =
            type_name(memory, owner).is_some_and(|name| WAITS_OF_OTHERS.contains(&name.as_str()));
        match is_others {
            true => Wait::None,
            false => Wait::Unknown,
        }
    }

    /// Values of a frame that are alive for sure. `None`: they cannot be read, or the frame is not the same any more.
    fn values(
        &self,
        memory: &impl Memory,
        frame: u64,
        fields: &[u8],
        most: usize,
    ) -> Option<Vec<u64>> {
        let (at, depth) = match self.layout.entries {
            Entries::All => by_blocks(memory, &self.layout, frame)?,
            Entries::Marked | Entries::Between => by_table(memory, &self.layout, frame, fields)?,
        };
        let mut bytes = vec![0; depth.min(MAX_VALUES).min(most) * VALUE as usize];
        fill(memory, at, &mut bytes).ok()?;
        let mut now = vec![0; fields.len()];
        fill(memory, frame, &mut now).ok()?;
        let place = |fields: &[u8]| {
            let of = [self.layout.code, self.layout.instruction];
            of.map(|place| word_in(fields, place))
        };
        let values = bytes.chunks_exact(VALUE as usize).map(plain);
        (place(&now) == place(fields)).then(|| values.collect())
    }
}

/// A frame that may have given away what a function outwards has taken.
enum Wait {
    None,
    /// The lock with this address.
    Releases(u64),
    Unknown,
}

/// Address of a frame's values, and how many are alive.
fn by_blocks(memory: &impl Memory, layout: &Layout, frame: u64) -> Option<(u64, usize)> {
    let at = frame.wrapping_add((layout.instruction + BLOCKS).into());
    let number = match u64::from(half(memory, at)?) {
        0 => return Some((frame, 0)),
        number @ 1..=MAX_BLOCKS => number,
        _ => return None,
    };
    let innermost = at.wrapping_add(FIRST_BLOCK + BLOCK * (number - 1));
    let depth = half(memory, innermost.wrapping_add(LEVEL))?;
    let values = word(memory, frame.wrapping_add(VALUES)).ok()?;
    Some((values, usize::try_from(depth.cast_signed()).unwrap_or(0)))
}

/// The same by the table of the code that the frame is in.
fn by_table(
    memory: &impl Memory,
    layout: &Layout,
    frame: u64,
    fields: &[u8],
) -> Option<(u64, usize)> {
    let code = word_in(fields, layout.code) & !u64::from(layout.code_tag);
    let at = place(layout, fields, code).ok()?;
    let Some(at) = at.checked_sub(layout.instructions.into()) else {
        return Some((frame, 0));
    };
    let table = word(memory, code.wrapping_add(EXCEPTIONS)).ok()?;
    let table = code::table(memory, table, MAX_TABLE).ok()?;
    let depth = depth_at(&table, u64::from(at) / u64::from(UNIT)).unwrap_or(0);
    let variables = u64::from(layout.first_line) + VARIABLES;
    let variables = half(memory, code.wrapping_add(variables))?.min(MAX_VARIABLES);
    let values = variables_at(layout) + u64::from(variables) * VALUE;
    Some((frame.wrapping_add(values), depth))
}

/// Bytes from a frame to its variables, of which the arguments are the first.
fn variables_at(layout: &Layout) -> u64 {
    match layout.entries {
        // The size of a frame has one of them.
        Entries::All => u64::from(layout.frame_bytes) - VALUE,
        Entries::Marked | Entries::Between => (u64::from(layout.mark) + 1).next_multiple_of(VALUE),
    }
}

/// Values that are alive at an instruction, if an exception there is handled: entries have the first instruction, how many there are, the
/// handler, and twice the depth of the stack, each a number of six bits a byte, the highest first.
fn depth_at(table: &[u8], instruction: u64) -> Option<usize> {
    let mut bytes = table.iter().copied();
    let mut number = || {
        let mut value = 0_u64;
        loop {
            let byte = bytes.next()?;
            value = value << 6 | u64::from(byte & BITS);
            if byte & MORE == 0 {
                return Some(value);
            }
        }
    };
    loop {
        let (start, size) = (number()?, number()?);
        let (_handler, depth) = (number()?, number()? >> 1);
        if instruction.checked_sub(start)? < size {
            return usize::try_from(depth).ok();
        }
    }
}

#[cfg(test)]
#[path = "within_tests.rs"]
mod tests;
