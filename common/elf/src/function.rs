//! Where a function begins.

use std::fs::File;

use object::elf::STT_FUNC;
use object::{Object, ObjectSymbol, SymbolFlags};

use crate::Headers;
use crate::source::{Limits, Pieces};

/// As for variables: tables of browsers have 30 MB.
const LIMITS: Limits = Limits {
    piece: 64 << 20,
    name: 1024,
    all: 192 << 20,
};
/// More symbols than any real file has.
const MAX_SYMBOLS: usize = 4 << 20;

/// File offset of the function of this name in either symbol table, without its version. Of several the first that is not weak counts.
/// `None`: there is none, or the file makes no sense.
pub fn function_offset(file: &File, name: &str) -> Option<u64> {
    let pieces = Pieces::new(file, LIMITS);
    let elf = object::File::parse(&pieces).ok()?;
    let symbols = elf.dynamic_symbols().chain(elf.symbols()).take(MAX_SYMBOLS);
    let is_it = |symbol: &object::Symbol<'_, '_, _>| {
        let is_function = match symbol.flags() {
            SymbolFlags::Elf { st_info, .. } => st_info.st_type() == STT_FUNC,
            _ => false,
        };
        is_function && symbol.is_definition() && symbol.name_bytes() == Ok(name.as_bytes())
    };
    let mut found = symbols.filter(is_it).peekable();
    let first = found.peek()?.address();
    let strong = found.find(|symbol| !symbol.is_weak());
    let address = strong.map_or(first, |symbol| symbol.address());
    Some(Headers::read(file)?.offset(address)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// glibc is stripped, so that it has but one of the tables.
    #[test]
    fn functions_of_the_c_library_are_found_by_their_plain_names() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let mut maps = maps.lines().filter(|line| line.contains("/libc.so"));
        let path = maps.next().and_then(|line| line.split_whitespace().last());
        let file = File::open(path.expect("a C library")).expect("a file");
        let offsets = ["malloc", "read"].map(|name| function_offset(&file, name));
        let [Some(malloc), Some(read)] = offsets else {
            panic!("{offsets:?}");
        };
        assert_ne!(malloc, read);
        for name in ["mallo", "malloc@@GLIBC_2.2.5", "environ", ""] {
            assert_eq!(function_offset(&file, name), None, "{name}");
        }
        let own = File::open("/proc/self/exe").expect("a file");
        assert!(function_offset(&own, "main").is_some());
    }
}
