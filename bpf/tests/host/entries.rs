//! Tables of programs, byte for byte.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::slice;

use crate::host::Host;

/// Entries of all tables that do not go by task: the table's name, key and values.
pub(crate) type Entries = BTreeSet<(String, Vec<u8>)>;

/// All that a run leaves behind for user space.
pub(crate) fn entries(host: &Host) -> Entries {
    extern "C" fn entry(to: *mut c_void, map: *const c_char, bytes: *const u8, length: u64) {
        // SAFETY: the host hands over what it was given, a name and as many bytes.
        let (entries, map, bytes) = unsafe {
            let bytes = slice::from_raw_parts(bytes, length as usize);
            (&mut *to.cast::<Entries>(), CStr::from_ptr(map), bytes)
        };
        entries.insert((map.to_str().expect("a name").into(), bytes.into()));
    }
    type Entry = extern "C" fn(*mut c_void, *const c_char, *const u8, u64);
    let mut entries = Entries::new();
    let to = (&raw mut entries).cast::<c_void>();
    host.tell("host_dump", (entry as Entry, to));
    entries
}

/// Byte for byte.
pub(crate) fn assert_same(exact: &Entries, within_budget: &Entries, case: &str) {
    let [missing, added] = [(exact, within_budget), (within_budget, exact)].map(|(of, less)| {
        let names = of.difference(less).map(|(table, _)| table.as_str());
        names.collect::<Vec<_>>()
    });
    assert!(!exact.is_empty(), "{case}: there is nothing to compare");
    assert!(
        missing.is_empty() && added.is_empty(),
        "{case}: {missing:?}, {added:?}"
    );
}
