//! The beginnings of functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use object::elf::STT_FUNC;
use object::{Object, ObjectSection, ObjectSymbol, SymbolFlags};

use crate::Headers;
use crate::demangle::{demangled_at_cost, is_mangled};
use crate::readable::is_called;
use crate::source::Pieces;
use crate::variables::{LIMITS, MAX_SYMBOLS};

/// A version that programs are no longer linked with: `VERSYM_HIDDEN` of the gABI's `.gnu.version`.
const HIDDEN: u16 = 1 << 15;

/// Bytes that are read and written to demangle names for one that is searched: a million of a hundred each, and more.
const MAX_DEMANGLED: usize = 256 << 20;
/// Symbols of one name that are told apart.
const MAX_NAMESAKES: usize = 64;

/// File offsets of the functions of this name in the symbol tables: of a symbol's own, else of what programmers call it, with or without
/// parameters and the types that a template is for. More than one where nobody can tell which is meant. `None`: the file makes no
/// sense, or is too large to search.
pub fn function_offsets(file: &File, name: &str) -> Option<Vec<u64>> {
    let of_symbol = symbol_offsets(file, name.as_bytes())?;
    if !of_symbol.is_empty() {
        return Some(of_symbol);
    }
    let mut offsets = Vec::new();
    for symbol in namesakes(file, name)?.keys() {
        offsets.extend(symbol_offsets(file, symbol)?);
    }
    offsets.sort_unstable();
    offsets.dedup();
    Some(offsets)
}

/// Whole names of the functions that programmers call so. `None`: the file makes no sense, or is too large to search.
pub fn function_names(file: &File, name: &str) -> Option<BTreeSet<String>> {
    Some(namesakes(file, name)?.into_values().collect())
}

/// Symbols and whole names of functions that programmers call so: those whose whole name it is, else all.
fn namesakes(file: &File, name: &str) -> Option<BTreeMap<Vec<u8>, String>> {
    let pieces = Pieces::new(file, LIMITS);
    let elf = object::File::parse(&pieces).ok()?;
    let tables = elf.dynamic_symbols().take(MAX_SYMBOLS);
    let tables = tables.chain(elf.symbols().take(MAX_SYMBOLS));
    let mut found = BTreeMap::new();
    let mut left = MAX_DEMANGLED;
    for symbol in tables.filter(is_function) {
        let Some(mangled) = symbol.name().ok().filter(|name| is_mangled(name)) else {
            continue;
        };
        let (readable, cost) = demangled_at_cost(mangled);
        left = left.checked_sub(cost)?;
        let room = MAX_NAMESAKES * (1 + usize::from(readable == name));
        if found.len() < room && readable != mangled && is_called(&readable, name) {
            found.insert(mangled.as_bytes().to_vec(), readable);
        }
    }
    if found.values().any(|whole| whole == name) {
        found.retain(|_, whole| whole == name);
    }
    (!pieces.overdrawn()).then_some(found)
}

fn is_function<'a>(symbol: &impl ObjectSymbol<'a>) -> bool {
    let is_of_code = match symbol.flags() {
        SymbolFlags::Elf { st_info, .. } => st_info.st_type() == STT_FUNC,
        _ => false,
    };
    is_of_code && symbol.is_definition()
}

/// File offsets of the functions of a symbol's name, those of versions that programs are linked with today before others, and strong ones
/// before weak ones: more than one where nobody can tell which is meant. `None`: the file makes no sense, or is too large to search.
pub(crate) fn symbol_offsets(file: &File, name: &[u8]) -> Option<Vec<u64>> {
    let pieces = Pieces::new(file, LIMITS);
    let elf = object::File::parse(&pieces).ok()?;
    let versions = elf.section_by_name(".gnu.version");
    let versions = versions.and_then(|section| section.data().ok());
    let is_hidden = |index: usize| {
        let at = index * 2;
        let bytes = versions.and_then(|all| all.get(at..at + 2));
        let version = bytes.and_then(|bytes| bytes.try_into().ok());
        version.is_some_and(|bytes| u16::from_le_bytes(bytes) & HIDDEN != 0)
    };
    // By how far a symbol stands back: a hidden version, then a weak one.
    let mut found: [Vec<u64>; 4] = Default::default();
    let mut add = |symbol: object::Symbol<'_, '_, _>, is_hidden: bool| {
        if is_function(&symbol) && symbol.name_bytes() == Ok(name) {
            let rank = 2 * usize::from(is_hidden) + usize::from(symbol.is_weak());
            found[rank].push(symbol.address());
        }
    };
    for symbol in elf.dynamic_symbols().take(MAX_SYMBOLS) {
        let is_hidden = is_hidden(symbol.index().0);
        add(symbol, is_hidden);
    }
    for symbol in elf.symbols().take(MAX_SYMBOLS) {
        add(symbol, false);
    }
    if pieces.overdrawn() {
        return None;
    }
    let mut best = found.into_iter().find(|found| !found.is_empty());
    let addresses = best.get_or_insert_default();
    addresses.sort_unstable();
    addresses.dedup();
    let headers = Headers::read(file)?;
    let offsets = addresses.iter().map(|address| headers.offset(*address));
    Some(offsets.flatten().map(|(offset, _)| offset).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// glibc is stripped, so that it has but one of the tables, and has several versions of some functions.
    #[test]
    fn functions_of_the_c_library_are_found_by_their_plain_names() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let mut maps = maps.lines().filter(|line| line.contains("/libc.so"));
        let path = maps.next().and_then(|line| line.split_whitespace().last());
        let file = File::open(path.expect("a C library")).expect("a file");
        let of = |name| function_offsets(&file, name).expect("a library");
        let (malloc, read) = (of("malloc"), of("read"));
        assert_eq!((malloc.len(), read.len()), (1, 1));
        assert_ne!(malloc, read);
        for name in ["mallo", "malloc@@GLIBC_2.2.5", "environ", ""] {
            assert_eq!(of(name), [], "{name}");
        }
        // The one that this program would call, too.
        let called = libc::pthread_cond_timedwait as *const () as u64;
        assert_eq!(of("pthread_cond_timedwait"), [offset_of(called)]);
        let own = File::open("/proc/self/exe").expect("a file");
        assert_eq!(
            function_offsets(&own, "main").map(|found| found.len()),
            Some(1)
        );
    }

    #[inline(never)]
    fn has_a_mangled_name(n: u64) -> u64 {
        std::hint::black_box(n) + 1
    }

    #[test]
    fn functions_are_found_by_what_programmers_call_them() {
        let own = File::open("/proc/self/exe").expect("a file");
        let of = |name| function_offsets(&own, name).expect("a program");
        let address = has_a_mangled_name as *const () as u64;
        let name = std::any::type_name_of_val(&has_a_mangled_name);
        assert_eq!(of(name), [offset_of(address)], "{name}");
        assert_eq!(of("has_a_mangled_name"), [], "it is in a module");
        let name = name.rsplit_once("::").expect("a module").0;
        assert_eq!(of(name), [], "a module is no function");
    }

    /// Offset in its file of an address of this process.
    fn offset_of(address: u64) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let holds = |line: &str| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let offset = number(words.nth(1)?);
            let range = number(start)..number(end);
            range
                .contains(&address)
                .then(|| address - range.start + offset)
        };
        maps.lines().find_map(holds).expect("a mapping")
    }
}
