//! Calls of functions of a loaded object, and rows that they hand over.

use std::slice;

/// A method that calls a function of the host with the same arguments.
macro_rules! calls {
    ($($(#[$about:meta])* $method:ident = $name:literal ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $($(#[$about])*
        pub(crate) fn $method(&self, $($argument: $type),*) $(-> $result)? {
            // SAFETY: its type; pointers are the host's own, or of arrays as long as it takes them to be.
            unsafe { self.host.function::<unsafe extern "C" fn($($type),*) $(-> $result)?>($name)($($argument),*) }
        })*
    };
}

/// Adds a row's numbers to a list.
pub(crate) type Row = extern "C" fn(*mut Vec<Vec<u64>>, *const u64, u32);

pub(crate) extern "C" fn row(to: *mut Vec<Vec<u64>>, numbers: *const u64, count: u32) {
    // SAFETY: the host hands over what it was given, and as many numbers.
    unsafe { (*to).push(slice::from_raw_parts(numbers, count as usize).to_vec()) };
}

/// Records of those who woke others, by numbers that begin with 1.
#[derive(Default)]
pub(crate) struct Wakers(Vec<[u64; 8]>);

impl Wakers {
    pub(crate) fn number_of(&mut self, record: [u64; 8]) -> u64 {
        let known = self.0.iter().position(|known| *known == record);
        let at = known.unwrap_or_else(|| {
            self.0.push(record);
            self.0.len() - 1
        });
        at as u64 + 1
    }

    /// Gives waiters' rows these numbers for the ids that the programs have.
    pub(crate) fn renumber(&mut self, rows: &mut [Vec<u64>], interned: impl Fn(u64) -> [u64; 8]) {
        for row in rows.iter_mut().filter(|row| row[0] == 2 && row[10] != 0) {
            row[10] = self.number_of(interned(row[10]));
        }
    }
}
