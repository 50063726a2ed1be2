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
