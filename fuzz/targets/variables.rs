//! Data symbols of a program that anyone may have made: no panic, names of bounded length, and memory that libFuzzer's limit
//! holds, however often the symbols name the same bytes.

#![no_main]

use elf::Variables;
use libfuzzer_sys::fuzz_target;

mod memory;

/// As long as a name may be, each character in four bytes.
const LONGEST: usize = 4 * 256;

fuzz_target!(|bytes: &[u8]| {
    let file = memory::file(bytes);
    let variables = Variables::read(&file, Some(&file));
    let offsets = [0, 0x1000, bytes.len() as u64];
    let biases = offsets.into_iter().filter_map(|offset| variables.bias(0x40_0000, offset));
    for bias in biases {
        for address in [0, 0x1000, 0x2000, 0x4010, u64::MAX] {
            let elf_address = 0x40_0000_u64.wrapping_add(address).wrapping_sub(bias);
            let found = variables.find(elf_address);
            if let Some((name, offset)) = found.variable {
                assert!(!name.is_empty() && name.len() <= LONGEST && offset <= elf_address);
                assert!(elf::demangled(name).len() <= elf::MAX_NAME);
            }
            assert!(found.section.is_none_or(|name| name.len() <= LONGEST));
        }
    }
});
