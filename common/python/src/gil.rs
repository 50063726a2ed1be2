//! The lock that the threads of an interpreter take turns with.

use crate::layout::{HOLDER, IS_LOCKED};
use crate::memory::{Memory, Unread, fill, half_in, word, word_in};
use crate::runtime::Runtime;

/// Bytes of the lock, in every version, on Linux: a condition and a mutex each for those that wait for it and those that hand it over.
const BYTES: u64 = 208;

/// The lock of an interpreter, which several may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gil {
    /// Its place: a futex among these bytes is waited on for it.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// The thread state that has it, or had it last; 0: none has had it.
    pub holder: u64,
    /// Tells if it has it. It may be given away at any time.
    pub is_locked: bool,
}

impl Runtime {
    /// The locks of all interpreters as they are now, each once.
    pub fn gils(&self, memory: &impl Memory) -> Vec<Gil> {
        let mut found: Vec<Gil> = Vec::new();
        for interpreter in self.interpreters(memory) {
            let Ok(gil) = self.gil(memory, interpreter) else {
                continue;
            };
            if found.iter().all(|known| known.address != gil.address) {
                found.push(gil);
            }
        }
        found
    }

    /// The lock of an interpreter, as it is now.
    ///
    /// # Errors
    ///
    /// When the memory cannot be read.
    pub fn gil(&self, memory: &impl Memory, interpreter: u64) -> Result<Gil, Unread> {
        let place = u64::from(self.layout.lock);
        let address = if self.layout.lock_is_in_runtime {
            self.runtime_address.wrapping_add(place)
        } else {
            word(memory, interpreter.wrapping_add(place))?
        };
        let mut bytes = [0; 24];
        fill(memory, address, &mut bytes)?;
        Ok(Gil {
            address,
            size: BYTES,
            holder: word_in(&bytes, HOLDER),
            is_locked: half_in(&bytes, IS_LOCKED) == 1,
        })
    }
}
