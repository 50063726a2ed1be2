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
/// Places in functions: what a bound one calls and what it is bound to, and the definition of one that is a type's.
const CALLED: u16 = 16;
const BOUND: u16 = 24;
const DEFINITION_OF_METHOD: u64 = 40;
/// Places of the name and the code of a function of Python's, up to 3.9, and from then on.
const NAME_TO_3_9: u64 = 64;
const CODE_TO_3_9: u64 = 16;
const NAME: u64 = 32;
const CODE: u64 = 48;
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

/// Place in an object of a class of Python's of its dictionary, or, from 3.13 on, of the head before its values; in a dictionary, the values.
const DICTIONARY: u64 = 16;
const VALUES_OF_DICTIONARY: u64 = 40;
/// Places before 3.11: in a dictionary its keys, in these their number and the indices before the entries, in an entry its value.
const KEYS_OF_DICTIONARY: u64 = 32;
const SIZE_OF_KEYS: u64 = 8;
const INDICES_OF_KEYS: u64 = 40;
const VALUE_OF_ENTRY: u64 = 16;
/// Bytes of an entry.
const ENTRY: u64 = 24;
/// Attributes of a condition that are looked at, twice as many where they come in any order; and the one that tells.
const MAX_ATTRIBUTES: u64 = 8;
const ACQUIRE: &str = "acquire";

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

/// A function that a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callee {
    pub(crate) name: String,
    /// The object that it is called on: what it is bound to, or the next value.
    pub(crate) on: u64,
    /// Its code, if it is one of Python's.
    pub(crate) code: Option<u64>,
}

impl Runtime {
    /// The function that a value is; `next`: the value behind it.
    pub(crate) fn callee(&self, memory: &impl Memory, value: u64, next: u64) -> Option<Callee> {
        let of = type_name(memory, value)?;
        let mut function = [0; 32];
        fill(memory, value, &mut function).ok()?;
        let (called, bound) = (word_in(&function, CALLED), word_in(&function, BOUND));
        let built_in = |definition: u64, on: u64| {
            let name = c_text(memory, word(memory, definition).ok()?)?;
            let code = None;
            Some(Callee { name, on, code })
        };
        match of.as_str() {
            BUILT_IN => built_in(called, bound),
            METHOD => {
                let definition = value.wrapping_add(DEFINITION_OF_METHOD);
                built_in(word(memory, definition).ok()?, next)
            }
            BOUND_METHOD => self.of_python(memory, called, bound),
            FUNCTION => self.of_python(memory, value, next),
            _ => None,
        }
    }

    fn of_python(&self, memory: &impl Memory, function: u64, on: u64) -> Option<Callee> {
        let (name, code) = if self.version.minor < 10 {
            (NAME_TO_3_9, CODE_TO_3_9)
        } else {
            (NAME, CODE)
        };
        let at = |place: u64| word(memory, function.wrapping_add(place)).ok();
        Some(Callee {
            name: text::read(memory, &self.layout, at(name)?, MAX_NAME).ok()?,
            on,
            code: Some(at(code)?),
        })
    }

    /// The lock that an object is.
    pub(crate) fn as_lock(&self, memory: &impl Memory, object: u64) -> Option<Lock> {
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

    /// The lock of a condition: what its attribute `acquire` is bound to, which is among the first ones that it was given.
    pub(crate) fn lock_of_condition(&self, memory: &impl Memory, object: u64) -> Option<Lock> {
        let (first, stride, number) = self.attributes(memory, object)?;
        (0..number).find_map(|index| {
            let value = word(memory, first.wrapping_add(stride * index)).ok()?;
            let callee = self.callee(memory, value, 0)?;
            let is_it = callee.name == ACQUIRE && callee.code.is_none() && callee.on != 0;
            is_it.then(|| self.as_lock(memory, callee.on))?
        })
    }

    /// Address of an object's first attribute, bytes from one to the next, and how many are looked at. From 3.11 on attributes have to be
    /// where the class keeps those of all.
    fn attributes(&self, memory: &impl Memory, object: u64) -> Option<(u64, u64, u64)> {
        let at = |address: u64| word(memory, address).ok();
        let of_values = |values: u64| (values, VALUE, MAX_ATTRIBUTES);
        let of_dictionary = |dictionary: u64| {
            let values = at(dictionary.wrapping_add(VALUES_OF_DICTIONARY))?;
            match values {
                0 if self.version.minor <= 10 => entries(memory, dictionary),
                values => Some(of_values(values)),
            }
        };
        let before = |words: u64| object.wrapping_sub(words * VALUE);
        match self.version.minor {
            ..=10 => of_dictionary(at(object.wrapping_add(DICTIONARY))?),
            11 => match at(before(4))? {
                0 => of_dictionary(at(before(3))?),
                values => Some(of_values(values)),
            },
            // One less than the address of the values, which is even, or that of a dictionary.
            12 => match at(before(3))? {
                values if values & 1 != 0 => Some(of_values(values.wrapping_add(1))),
                dictionary => of_dictionary(dictionary),
            },
            _ => {
                // Capacity, size, whether they are within the object, whether they are valid: a byte each.
                let head = object.wrapping_add(DICTIONARY);
                let [capacity, _, _, is_valid] = half(memory, head)?.to_le_bytes();
                let number = u64::from(capacity).min(2 * MAX_ATTRIBUTES);
                (is_valid == 1).then_some((head.wrapping_add(VALUE), VALUE, number))
            }
        }
    }
}

/// The values of a dictionary with keys of its own, before 3.11, as `attributes` has them.
fn entries(memory: &impl Memory, dictionary: u64) -> Option<(u64, u64, u64)> {
    let at = |address: u64| word(memory, address).ok();
    let keys = at(dictionary.wrapping_add(KEYS_OF_DICTIONARY))?;
    let size = at(keys.wrapping_add(SIZE_OF_KEYS))?;
    let bytes = match size {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => return None,
    };
    let first = keys.wrapping_add(INDICES_OF_KEYS + size * bytes);
    Some((
        first.wrapping_add(VALUE_OF_ENTRY),
        ENTRY,
        size.min(MAX_ATTRIBUTES),
    ))
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
