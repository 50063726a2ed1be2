//! Symbols of known names, with their sizes.

use std::fs::File;

use object::{Object, ObjectSymbol};

use crate::source::Pieces;
use crate::variables::{LIMITS, MAX_SYMBOLS};

/// A place in a file that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// ELF address.
    pub address: u64,
    /// Bytes; 0: nobody says.
    pub size: u64,
}

/// The symbols of these names, those for the dynamic linker before others. `None`: the file makes no sense, or is too large to search.
pub fn symbols<const N: usize>(file: &File, names: [&str; N]) -> Option<[Option<Symbol>; N]> {
    find(file, names, true)
}

/// The same among the symbols for the dynamic linker alone, of which programs have few: what others may link with, or load.
pub fn dynamic_symbols<const N: usize>(
    file: &File,
    names: [&str; N],
) -> Option<[Option<Symbol>; N]> {
    find(file, names, false)
}

fn find<const N: usize>(
    file: &File,
    names: [&str; N],
    in_all: bool,
) -> Option<[Option<Symbol>; N]> {
    let pieces = Pieces::new(file, LIMITS);
    let elf = object::File::parse(&pieces).ok()?;
    let mut found = [None; N];
    let mut add = |symbol: object::Symbol<'_, '_, _>| {
        if !symbol.is_definition() {
            return;
        }
        let Ok(name) = symbol.name_bytes() else {
            return;
        };
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) {
            found[at].get_or_insert(Symbol {
                address: symbol.address(),
                size: symbol.size(),
            });
        }
    };
    elf.dynamic_symbols().take(MAX_SYMBOLS).for_each(&mut add);
    if in_all {
        elf.symbols().take(MAX_SYMBOLS).for_each(&mut add);
    }
    (!pieces.overdrawn()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has to be in the symbol table: looked up by the test below.
    #[used]
    #[unsafe(no_mangle)]
    static USEKIT_FOUND_BY_NAME: [u32; 5] = [1; 5];

    #[test]
    fn symbols_are_found_by_their_whole_names() {
        let file = File::open("/proc/self/exe").expect("this program");
        let names = ["USEKIT_FOUND_BY_NAME", "main", "USEKIT_FOUND"];
        let [variable, main, part] = symbols(&file, names).expect("a program");
        assert_eq!(variable.expect("a symbol").size, 20);
        assert!(main.expect("a function").address != 0);
        assert_eq!(part, None);
        let none = dynamic_symbols(&file, ["USEKIT_FOUND_BY_NAME", "main"]);
        assert_eq!(none, Some([None, None]));
        let text = File::open("/etc/passwd").expect("a file");
        assert_eq!(symbols(&text, ["main"]), None);
    }
}
