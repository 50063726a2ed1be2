//! `/proc/PID/maps`, whose paths a process chooses: no panic, and every mapping is one that a line tells of.

#![no_main]

use libfuzzer_sys::fuzz_target;

// Of a crate that needs libbpf, which these do not.
#[path = "../../common/symbols/src/mappings/mapping.rs"]
mod mapping;
#[path = "../../common/symbols/src/mappings/maps.rs"]
#[expect(dead_code, reason = "what opens files")]
mod maps;

use mapping::{Backing, FileKey, Mapping, backing_of};

fuzz_target!(|bytes: &[u8]| {
    let mappings = maps::parse(bytes);
    let lines = bytes.split(|&byte| byte == b'\n').count();
    assert!(mappings.len() <= lines);
    for mapping in mappings {
        assert!(mapping.start < mapping.end && mapping.covers(mapping.start));
        assert!(!mapping.covers(mapping.end) && mapping.same_content(&mapping));
        let path = &mapping.path;
        if let Backing::File(key) = mapping.backing {
            assert!(path.starts_with(b"/") && key.inode != 0);
        }
        assert!(path.len() <= bytes.len());
        mapping.file_offset(mapping.end - 1);
    }
});
