//! A program that anyone may have made: headers, notes, debug links, `.gnu_debugdata`, callers, Go's function table. No panic, and
//! what is said about it is inside its bounds.

#![no_main]

use elf::Headers;
use elf::go::GoFile;
use libfuzzer_sys::fuzz_target;

mod memory;

fuzz_target!(|bytes: &[u8]| {
    let file = memory::file(bytes);
    assert_eq!(elf::is_elf(&file), bytes.starts_with(b"\x7fELF"));
    let Some(headers) = Headers::read(&file) else {
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
        elf::unpacks_within(&file, range);
    }
    for function in elf::callers(&file, &headers, "f") {
        assert!(!function.is_empty());
    }
    let image = GoFile::new(&file, &headers);
    if let Some(table) = image.functions() {
        let code = table.code().unwrap_or(0..0);
        for address in [code.start, code.start.wrapping_add(1), code.end.wrapping_sub(1), code.end] {
            let name = table.name(&image, address);
            assert!(name.is_none_or(|name| !name.is_empty()));
        }
    }
});
