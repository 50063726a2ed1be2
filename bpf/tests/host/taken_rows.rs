//! Rows that offcputime's programs tell, and the model's: by key, times and ns of them.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::slice;

use crate::host::machine::Machine;

pub(crate) type Rows<const KEY: usize> = BTreeMap<[u64; KEY], [u64; 2]>;

pub(crate) fn add<const KEY: usize>(rows: &mut Rows<KEY>, key: [u64; KEY], [count, ns]: [u64; 2]) {
    let row = rows.entry(key).or_default();
    row[0] += count;
    row[1] += ns;
}

/// Rows of the programs; the host's `host_take_rows` hands over a key and two numbers for each.
pub(crate) fn told<const KEY: usize>(machine: &Machine) -> Rows<KEY> {
    type Row = extern "C" fn(*mut c_void, *const u64);
    extern "C" fn row<const KEY: usize>(to: *mut c_void, numbers: *const u64) {
        // SAFETY: the host hands over what it was given, a key and two numbers.
        let (rows, numbers) = unsafe {
            let numbers = slice::from_raw_parts(numbers, KEY + 2);
            (&mut *to.cast::<Rows<KEY>>(), numbers)
        };
        let (key, sums) = numbers.split_first_chunk().expect("a key");
        add(rows, *key, sums.try_into().expect("two numbers"));
    }
    let mut rows = Rows::new();
    machine.host.tell(
        "host_take_rows",
        (row::<KEY> as Row, (&raw mut rows).cast::<c_void>()),
    );
    rows
}
