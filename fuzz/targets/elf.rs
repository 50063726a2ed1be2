//! A program that anyone may have made: headers, notes, debug links, `.gnu_debugdata`, Go's function table. No panic, and
//! what is said about it is inside its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;

mod memory;

// Of a crate that needs libbpf, which these do not.
#[path = "../../common/symbols/src/elf.rs"]
mod elf;
#[path = "../../common/symbols/src/gofile.rs"]
mod gofile;
#[path = "../../common/symbols/src/goheader.rs"]
mod goheader;
#[path = "../../common/symbols/src/minidebug.rs"]
mod minidebug;
#[path = "../../common/symbols/src/pclntab.rs"]
mod pclntab;
#[path = "../../common/symbols/src/pieces.rs"]
mod pieces;
#[path = "../../common/symbols/src/relocations.rs"]
mod relocations;

/// What the real one has, beside the library that names are read with.
mod demangle {
    pub(super) const MAX_NAME: usize = 16 << 10;
}

fuzz_target!(|bytes: &[u8]| {
    let file = memory::file(bytes);
    assert_eq!(elf::is_elf(&file), bytes.starts_with(b"\x7fELF"));
    let Some(headers) = elf::read(&file) else {
        return;
    };
    assert!(headers.build_id.as_ref().is_none_or(|id| (1..=64).contains(&id.len())));
    if let Some((name, _)) = &headers.debug_link {
        assert!(!name.contains(&0) && name.len() < bytes.len());
    }
    for load in headers.loads.iter().take(16) {
        if let (Some(address), true) = (headers.address(load.offset), load.is_executable()) {
            headers.is_code(address);
            headers.same_section(address, address.wrapping_add(1));
        }
        headers.offset(load.address);
    }
    if let Some(range) = headers.mini_debug.clone() {
        minidebug::unpacks_within(&file, range);
    }
    let image = gofile::GoFile::new(&file, &headers);
    if let Some(table) = image.functions() {
        let code = table.code().unwrap_or(0..0);
        for address in [code.start, code.start.wrapping_add(1), code.end.wrapping_sub(1), code.end] {
            let name = table.name(&image, address);
            assert!(name.is_none_or(|name| !name.is_empty()));
        }
    }
});
