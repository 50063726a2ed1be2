//! Objects that tell who has a lock: functions and what they are called on, conditions, locks.

use crate::memory::{Memory, fill, half_in, word, word_in};
use crate::runtime::Runtime;
use crate::text;

/// The first version whose locks are bytes: those before have a semaphore.
pub(crate) const FIRST_WITH_BYTES: u8 = 14;
/// Bytes of a value, and its bits that are none of an object's address.
pub(crate) const VALUE: u64 = 8;
pub(crate) const TAG: u64 = 3;

/// Places in objects: of any its type, of a type its name.
const TYPE: u64 = 8;
const TYPE_NAME: u64 = 24;
/// The same of functions: what a bound one calls and what it is bound to, and the definition of one that is a type's.
const CALLED: u16 = 16;
const BOUND: u16 = 24;
const DEFINITION_OF_METHOD: u64 = 40;
/// Place of the name of a function of Python's, up to 3.9, and from then on.
const NAME_TO_3_9: u64 = 64;
const NAME: u64 = 32;
/// Types of functions: built in and bound, of a type, of Python's and bound, of Python's.
const BUILT_IN: &str = "builtin_function_or_method";
const METHOD: &str = "method_descriptor";
const BOUND_METHOD: &str = "method";
const FUNCTION: &str = "function";

const LOCK_TYPE: &str = "_thread.lock";
const RLOCK_TYPE: &str = "_thread.RLock";
/// Places in a lock: the address of its semaphore, or its byte; what its thread's `pthread_self` is, of an `RLock`.
const LOCK: u64 = 16;
const OWNER: u64 = 24;

/// Places in an object of a class of Python's: its dictionary, or, from 3.13 on, its values behind a head; in a dictionary, the values.
const DICTIONARY: u64 = 16;
const VALUES_OF_DICTIONARY: u64 = 40;
/// Places before 3.11: in a dictionary its keys, in these their number and the indices before the entries, in an entry its value.
const KEYS_OF_DICTIONARY: u64 = 32;
const SIZE_OF_KEYS: u64 = 8;
const INDICES_OF_KEYS: u64 = 40;
const VALUE_OF_ENTRY: u64 = 16;
/// Attributes of a condition that are looked at from 3.13 on.
const MAX_ATTRIBUTES: u64 = 8;

/// Characters of names that are compared.
const MAX_NAME: usize = 32;

/// A lock (`threading.Lock` or `RLock`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Address of its semaphore, which waits are for, or of its byte.
    pub(crate) address: u64,
    /// The thread that has it, by its `pthread_self`, where it says so; 0: nobody has it.
    pub(crate) owner: Option<u64>,
}

/// A value of a frame's stack, which has bits from 3.14 on that tell how it is counted. Objects lie at multiples of 16.
pub(crate) fn plain(bytes: &[u8]) -> u64 {
    word_in(bytes, 0) & !TAG
}

/// The name of a type, if it is a short one.
pub(crate) fn type_name(memory: &impl Memory, object: u64) -> Option<String> {
    let of = word(memory, object.wrapping_add(TYPE)).ok()?;
    c_text(memory, word(memory, of.wrapping_add(TYPE_NAME)).ok()?)
}

impl Runtime {
    /// Name of the function that a value is, and what that is called on: what it is bound to, or the `next` value.
    pub(crate) fn callee(
        &self,
        memory: &impl Memory,
        value: u64,
        next: u64,
    ) -> Option<(String, u64)> {
        let of = type_name(memory, value)?;
        let mut function = [0; 32];
        fill(memory, value, &mut function).ok()?;
        let (called, bound) = (word_in(&function, CALLED), word_in(&function, BOUND));
        let name_at = |at: u64| c_text(memory, word(memory, at).ok()?);
        match of.as_str() {
            BUILT_IN => Some((name_at(called)?, bound)),
            METHOD => {
                let definition = value.wrapping_add(DEFINITION_OF_METHOD);
                Some((name_at(word(memory, definition).ok()?)?, next))
            }
            BOUND_METHOD => Some((self.function_name(memory, called)?, bound)),
            FUNCTION => Some((self.function_name(memory, value)?, next)),
            _ => None,
        }
    }

    fn function_name(&self, memory: &impl Memory, function: u64) -> Option<String> {
        let place = if self.version.minor < 10 {
            NAME_TO_3_9
        } else {
            NAME
        };
        let name = word(memory, function.wrapping_add(place)).ok()?;
        text::read(memory, &self.layout, name, MAX_NAME).ok()
    }

    /// The lock that an object is, or that a condition has.
    pub(crate) fn lock(&self, memory: &impl Memory, object: u64) -> Option<Lock> {
        self.as_lock(memory, object)
            .or_else(|| self.as_lock(memory, self.lock_of(memory, object)?))
    }

    fn as_lock(&self, memory: &impl Memory, object: u64) -> Option<Lock> {
        let at = object.wrapping_add(LOCK);
        let address = match self.version.minor >= FIRST_WITH_BYTES {
            true => Some(at),
            false => word(memory, at).ok(),
        };
        let owner = match type_name(memory, object)?.as_str() {
            LOCK_TYPE => None,
            RLOCK_TYPE => Some(word(memory, object.wrapping_add(OWNER)).ok()?),
            _ => return None,
        };
        address.map(|address| Lock { address, owner })
    }

    /// The attribute `_lock` of a condition: the first one that it was given, or, from 3.13 on, the only lock among the first ones, for there
    /// they come in any order. From 3.11 on attributes have to be where the class keeps those of all.
    fn lock_of(&self, memory: &impl Memory, object: u64) -> Option<u64> {
        let at = |address: u64| word(memory, address).ok();
        let of_dictionary = |dictionary: u64| {
            let values = at(dictionary.wrapping_add(VALUES_OF_DICTIONARY))?;
            match values {
                0 if self.version.minor <= 10 => first_entry(memory, dictionary),
                values => at(values),
            }
        };
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
            _ => (1..=MAX_ATTRIBUTES).find_map(|index| {
                let value = at(object.wrapping_add(DICTIONARY + VALUE * index))?;
                self.as_lock(memory, value).map(|_| value)
            }),
        }
    }
}

/// The value that came first into a dictionary with keys of its own, before 3.11.
fn first_entry(memory: &impl Memory, dictionary: u64) -> Option<u64> {
    let at = |address: u64| word(memory, address).ok();
    let keys = at(dictionary.wrapping_add(KEYS_OF_DICTIONARY))?;
    let size = at(keys.wrapping_add(SIZE_OF_KEYS))?;
    let bytes = match size {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => return None,
    };
    let entry = keys.wrapping_add(INDICES_OF_KEYS + size * bytes);
    at(entry.wrapping_add(VALUE_OF_ENTRY))
}

/// The string of C at an address, if it is short.
fn c_text(memory: &impl Memory, address: u64) -> Option<String> {
    let mut bytes = [0; MAX_NAME];
    let read = memory.read(address, &mut bytes).ok()?;
    let end = bytes[..read.min(MAX_NAME)]
        .iter()
        .position(|byte| *byte == 0)?;
    std::str::from_utf8(&bytes[..end]).ok().map(str::to_owned)
}

/// A number of four bytes.
pub(crate) fn half(memory: &impl Memory, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    fill(memory, address, &mut bytes).ok()?;
    Some(half_in(&bytes, 0))
}
