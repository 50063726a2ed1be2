//! Locks that functions have taken by `with`: until such a block is left, the lock's `__exit__` lies on the stack of values of the frame.
//! Up to 3.13 it is bound to the lock, which has a semaphore; from 3.14 on the lock lies behind it, and has a byte.
//!
//! That stack has stale values above its end, and the interpreter keeps the end in a register while it runs. But it has to know how deep
//! the stack is where an exception is handled, and what lies below that is alive: before 3.11 the frame has a stack of blocks that says
//! so, from then on the code has a table (`Objects/exception_handling_notes.txt` of CPython).

use std::ops::ControlFlow;

use crate::code;
use crate::layout::{Entries, Layout};
use crate::memory::{Memory, Unread, fill, half_in, word, word_in};
use crate::runtime::Runtime;
use crate::walk::{each_frame, place};

/// The first version whose locks are bytes.
const FIRST_WITH_BYTES: u8 = 14;
/// Frames that are looked at.
const MAX_FRAMES: usize = 128;
/// Values of a frame that are looked at: the outermost ones.
const MAX_VALUES: usize = 256;
/// Bytes of a value, and its bits that are none of an object's address.
const VALUE: u64 = 8;
const TAG: u64 = 3;

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
/// A frame has no more variables.
const MAX_VARIABLES: u32 = 1 << 16;
/// Bits of a byte of the table: of a number, another byte follows, an entry begins.
const BITS: u8 = 63;
const MORE: u8 = 64;

/// Place in a frame from 3.14 on: the end of the stack of values, which is kept there during calls.
const END: u16 = 64;
/// Values before that end of which one is the lock that is waited for: it, its function, and what that is called with.
const MAX_ARGUMENTS: usize = 4;

/// Places in objects: of any its type, of a type its name, of functions their definitions and what one is bound to, of a lock the address
/// of its semaphore, or its byte.
const TYPE: u64 = 8;
const TYPE_NAME: u64 = 24;
const DEFINITION: u16 = 16;
const BOUND: u16 = 24;
const DEFINITION_OF_METHOD: u64 = 40;
const LOCK: u64 = 16;
const BUILT_IN: &str = "builtin_function_or_method";
const METHOD: &str = "method_descriptor";
/// The same of functions of Python's: bound to an object, and not.
const BOUND_METHOD: &str = "method";
const FUNCTION: &str = "function";
/// Places in an object of a class of Python's: its dictionary, or, from 3.13 on, its values behind a head; in a dictionary, the values.
const DICTIONARY: u64 = 16;
const VALUES_OF_DICTIONARY: u64 = 40;
const EXIT: &str = "__exit__";
const TAKING: [&str; 3] = ["__enter__", "acquire", "acquire_lock"];
const CONDITION: &str = "Condition";
/// Names of its function that gives the lock away meanwhile: qualified ones, and those before 3.11.
const WAITS: [&str; 2] = ["Condition.wait", "wait"];
const LOCKS: [&str; 2] = ["_thread.lock", "_thread.RLock"];
/// Characters of such names.
const MAX_NAME: usize = 32;

impl Runtime {
    /// Addresses of the locks (`threading.Lock` and `RLock`) in whose `with` blocks the functions of a thread are, of the innermost function
    /// first; what cannot be read is left out. The address is that of the semaphore, which waits are for, or of the byte.
    pub fn locks_within(&self, memory: &impl Memory, thread_state: u64) -> Vec<u64> {
        let (mut locks, mut released) = (Vec::new(), Vec::new());
        let each = |frame: u64, bytes: &[u8]| {
            released.extend(self.released(memory, frame, bytes));
            if let Ok(values) = self.values(memory, frame, bytes) {
                let behind = values.iter().skip(1).chain([&0]);
                let pairs = values.iter().zip(behind);
                let taken = pairs.filter_map(|(value, next)| self.taken(memory, *value, *next));
                locks.extend(taken.filter(|lock| !released.contains(lock)));
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
            // A condition's are bound to its lock.
            let unbound = method(memory, call[0]).map(|name| (name, call[1]));
            let (name, owner) = unbound.or_else(|| bound(memory, call[0]))?;
            let takes = TAKING.contains(&name.as_str());
            takes.then(|| self.address(memory, owner))?
        })
    }

    /// The lock whose `__exit__` a value is, and the next value what that is called with; or that of a condition.
    fn taken(&self, memory: &impl Memory, value: u64, next: u64) -> Option<u64> {
        let has_bytes = self.version.minor >= FIRST_WITH_BYTES;
        let (name, owner) = match has_bytes {
            true => (method(memory, value)?, next),
            false => bound(memory, value)?,
        };
        let lock = match type_name(memory, owner)?.as_str() {
            CONDITION => self.first_attribute(memory, owner)?,
            _ if name == EXIT => owner,
            _ => return None,
        };
        self.address(memory, lock)
    }

    /// The lock that a frame has given away, though it is in a `with` block of another one: `Condition.wait` takes it again at its end.
    fn released(&self, memory: &impl Memory, frame: u64, bytes: &[u8]) -> Option<u64> {
        let layout = &self.layout;
        let code = word_in(bytes, layout.code) & !u64::from(layout.code_tag);
        let name = word(memory, code.wrapping_add(layout.name.into())).ok()?;
        let name = crate::text::read(memory, layout, name, MAX_NAME).ok()?;
        if !WAITS.contains(&name.as_str()) {
            return None;
        }
        let owner = word(memory, frame.wrapping_add(variables_at(layout))).ok()?;
        let owner = owner & !TAG;
        let is_condition = type_name(memory, owner)? == CONDITION;
        is_condition.then_some(())?;
        self.address(memory, self.first_attribute(memory, owner)?)
    }

    /// The address that a lock is known by.
    fn address(&self, memory: &impl Memory, lock: u64) -> Option<u64> {
        let at = lock.wrapping_add(LOCK);
        match self.version.minor >= FIRST_WITH_BYTES {
            _ if !is_lock(memory, lock) => None,
            true => Some(at),
            false => word(memory, at).ok(),
        }
    }

    /// The attribute that a function of Python's gave an object first, as long as it has no other than all of its class: `_lock` of a
    /// condition.
    fn first_attribute(&self, memory: &impl Memory, object: u64) -> Option<u64> {
        let at = |address: u64| word(memory, address).ok();
        let of_dictionary =
            |dictionary: u64| at(at(dictionary.wrapping_add(VALUES_OF_DICTIONARY))?);
        let before = |words: u64| object.wrapping_sub(words * VALUE);
        match self.version.minor {
            ..=10 => of_dictionary(at(object.wrapping_add(DICTIONARY))?),
            11 => match at(before(4))? {
                0 => of_dictionary(at(before(3))?),
                values => at(values),
            },
            // One less than the address of the values, which is even, or that of a dictionary.
            12 => match at(before(3))? {
                values if values & 1 != 0 => at(values.wrapping_add(1)),
                dictionary => of_dictionary(dictionary),
            },
            _ => at(object.wrapping_add(DICTIONARY + VALUE)),
        }
    }

    /// Values of a frame that are alive for sure.
    fn values(&self, memory: &impl Memory, frame: u64, bytes: &[u8]) -> Result<Vec<u64>, Unread> {
        let (at, depth) = match self.layout.entries {
            Entries::All => by_blocks(memory, &self.layout, frame)?,
            Entries::Marked | Entries::Between => by_table(memory, &self.layout, frame, bytes)?,
        };
        let mut bytes = vec![0; depth.min(MAX_VALUES) * VALUE as usize];
        fill(memory, at, &mut bytes)?;
        Ok(bytes.chunks_exact(VALUE as usize).map(plain).collect())
    }
}

/// Address of a frame's values, and how many are alive.
fn by_blocks(memory: &impl Memory, layout: &Layout, frame: u64) -> Result<(u64, usize), Unread> {
    let at = frame.wrapping_add((layout.instruction + BLOCKS).into());
    let number = match u64::from(half(memory, at)?) {
        0 => return Ok((frame, 0)),
        number @ 1..=MAX_BLOCKS => number,
        _ => return Err(Unread::Malformed("frame")),
    };
    let innermost = at.wrapping_add(FIRST_BLOCK + BLOCK * (number - 1));
    let depth = half(memory, innermost.wrapping_add(LEVEL))?;
    Ok((
        word(memory, frame.wrapping_add(VALUES))?,
        usize::try_from(depth.cast_signed()).unwrap_or(0),
    ))
}

/// The same by the table of the code that the frame is in.
fn by_table(
    memory: &impl Memory,
    layout: &Layout,
    frame: u64,
    bytes: &[u8],
) -> Result<(u64, usize), Unread> {
    let code = word_in(bytes, layout.code) & !u64::from(layout.code_tag);
    let Some(at) = place(layout, bytes, code)?.checked_sub(layout.instructions.into()) else {
        return Ok((frame, 0));
    };
    let table = word(memory, code.wrapping_add(EXCEPTIONS))?;
    let table = code::table(memory, table)?;
    let depth = depth_at(&table, u64::from(at) / u64::from(crate::lines::UNIT)).unwrap_or(0);
    let variables = u64::from(layout.first_line) + VARIABLES;
    let variables = half(memory, code.wrapping_add(variables))?.min(MAX_VARIABLES);
    let values = variables_at(layout) + u64::from(variables) * VALUE;
    Ok((frame.wrapping_add(values), depth))
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

/// A value without the bits that tell how it is counted, from 3.14 on. Objects lie at multiples of 16.
fn plain(bytes: &[u8]) -> u64 {
    word_in(bytes, 0) & !TAG
}

/// Name of a built-in function, and what it is bound to; one of Python's has none here.
fn bound(memory: &impl Memory, value: u64) -> Option<(String, u64)> {
    let of = type_name(memory, value)?;
    let mut function = [0; 32];
    fill(memory, value, &mut function).ok()?;
    let owner = word_in(&function, BOUND);
    match of.as_str() {
        BUILT_IN => {
            let name = word(memory, word_in(&function, DEFINITION)).ok()?;
            Some((text(memory, name)?, owner))
        }
        BOUND_METHOD => Some((String::new(), owner)),
        _ => None,
    }
}

/// Name of a built-in function of a type, which is bound to nothing; one of Python's has none here.
fn method(memory: &impl Memory, value: u64) -> Option<String> {
    match type_name(memory, value)?.as_str() {
        METHOD => {}
        FUNCTION => return Some(String::new()),
        _ => return None,
    }
    let definition = word(memory, value.wrapping_add(DEFINITION_OF_METHOD)).ok()?;
    text(memory, word(memory, definition).ok()?)
}

fn is_lock(memory: &impl Memory, object: u64) -> bool {
    type_name(memory, object).is_some_and(|name| LOCKS.contains(&name.as_str()))
}

fn type_name(memory: &impl Memory, object: u64) -> Option<String> {
    let of = word(memory, object.wrapping_add(TYPE)).ok()?;
    text(memory, word(memory, of.wrapping_add(TYPE_NAME)).ok()?)
}

/// The string of C at an address, if it is short.
fn text(memory: &impl Memory, address: u64) -> Option<String> {
    let mut bytes = [0; MAX_NAME];
    let read = memory.read(address, &mut bytes).ok()?;
    let end = bytes[..read.min(MAX_NAME)]
        .iter()
        .position(|byte| *byte == 0)?;
    std::str::from_utf8(&bytes[..end]).ok().map(str::to_owned)
}

fn half(memory: &impl Memory, address: u64) -> Result<u32, Unread> {
    let mut bytes = [0; 4];
    fill(memory, address, &mut bytes)?;
    Ok(half_in(&bytes, 0))
}

#[cfg(test)]
#[path = "within_tests.rs"]
mod tests;
