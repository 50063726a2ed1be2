//! Names of ELF addresses through blazesym, in the process that reads foreign files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, InlinedFn, Input, Sym, Symbolized, Symbolizer};
use elf::{MAX_NAME, demangled};
use foreign::wire::at_most;
use serde::{Deserialize, Serialize};

use crate::rust_paths;

/// Functions inlined into each other at one address.
pub(super) const MAX_INLINED: usize = 256;

/// At one address: these, and the one that they are inlined into.
const MAX_NAMED: usize = MAX_INLINED + 1;
/// Marks in front of each other between an address and the function that it is in.
const MAX_MARKS: usize = 64;
/// Bytes of a name that is cut behind a character, with an ellipsis.
const MAX_CUT: usize = MAX_NAME + 8;

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) line: Option<(String, u32)>,
}

/// The functions at an address, outermost first, and where the symbol starts if it has no size.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Functions {
    #[serde(deserialize_with = "at_most::<_, _, MAX_NAMED>")]
    pub(super) named: Vec<Named>,
    pub(super) sizeless: Option<u64>,
}

impl Functions {
    /// Whether there is one, and no name is longer than those given here.
    pub(super) fn is_bounded(&self) -> bool {
        let names = self.named.iter().map(|named| &named.name);
        let files = self.named.iter().filter_map(|named| named.line.as_ref());
        let mut texts = names.chain(files.map(|(file, _)| file));
        !self.named.is_empty() && texts.all(|text| text.len() <= MAX_CUT)
    }

    /// Tells if the outermost is a function of Rust's that has a name without modules.
    fn is_bare_rust(&self) -> bool {
        self.named.first().is_some_and(|outer| {
            let file = outer.line.as_ref().map(|(file, _)| file.as_str());
            file.is_some_and(|file| file.ends_with(".rs")) && rust_paths::is_bare(&outer.name)
        })
    }
}

/// The library and its caches.
pub(super) struct ElfNames {
    symbolizer: Symbolizer,
    inline: bool,
}

impl ElfNames {
    pub(super) fn new(inline: bool) -> Self {
        Self {
            symbolizer: build(inline),
            inline,
        }
    }

    /// The functions at ELF virtual addresses of the file at `path`; `dwarf` allows to read debug information. `None` when
    /// the library panicked over the file.
    pub(super) fn resolve(
        &mut self,
        path: &Path,
        dwarf: bool,
        addresses: &[u64],
    ) -> Option<Vec<Option<Functions>>> {
        let with = self.attempt(path, dwarf, addresses);
        match with {
            // Broken DWARF leaves the symbol table.
            None | Some(None) if dwarf => self.attempt(path, false, addresses),
            other => other,
        }
        .map(|found| found.unwrap_or_else(|| none(addresses)))
        .map(|found| match dwarf {
            true => self.with_symbols(path, addresses, found),
            false => found,
        })
    }

    /// Gives Rust functions without modules, as debug information of lines alone has them, the names of their symbols.
    fn with_symbols(
        &mut self,
        path: &Path,
        addresses: &[u64],
        mut found: Vec<Option<Functions>>,
    ) -> Vec<Option<Functions>> {
        let bare: Vec<usize> = found
            .iter()
            .enumerate()
            .filter(|(_, functions)| functions.as_ref().is_some_and(Functions::is_bare_rust))
            .map(|(at, _)| at)
            .collect();
        if bare.is_empty() {
            return found;
        }
        let bare_addresses: Vec<u64> = bare.iter().map(|at| addresses[*at]).collect();
        let symbols = self.attempt(path, false, &bare_addresses).flatten();
        for (at, symbol) in bare.into_iter().zip(symbols.into_iter().flatten()) {
            let name = symbol.and_then(|symbol| symbol.named.into_iter().next());
            let name = name
                .map(|named| named.name)
                .filter(|name| name.contains("::"));
            if let (Some(functions), Some(name)) = (&mut found[at], name) {
                functions.named[0].name = name;
            }
        }
        found
    }

    /// `None` after a panic, `Some(None)` when the file is broken.
    fn attempt(
        &mut self,
        path: &Path,
        dwarf: bool,
        addresses: &[u64],
    ) -> Option<Option<Vec<Option<Functions>>>> {
        let source = Source::Elf(Elf {
            debug_syms: dwarf,
            ..Elf::new(path)
        });
        let symbolizer = &self.symbolizer;
        let result = catch_unwind(AssertUnwindSafe(|| {
            let found = symbolizer
                .symbolize(&source, Input::VirtOffset(addresses))
                .ok()?;
            let found = addresses.iter().zip(found).map(|(address, symbolized)| {
                match symbolized.as_sym().filter(|sym| is_mark(&sym.name)) {
                    Some(mark) => around(symbolizer, &source, *address, mark),
                    None => functions(symbolized),
                }
            });
            Some(found.collect::<Vec<_>>())
        }));
        match result {
            Ok(found) => Some(found.filter(|f| f.len() == addresses.len())),
            Err(_) => {
                // What it had read of other files is read again.
                self.symbolizer = build(self.inline);
                None
            }
        }
    }
}

fn none(addresses: &[u64]) -> Vec<Option<Functions>> {
    addresses.iter().map(|_| None).collect()
}

fn build(inline: bool) -> Symbolizer {
    // No debug directories: the library would look in our mount namespace, by names that the target chose.
    Symbolizer::builder()
        .set_debug_dirs(Some::<[&str; 0]>([]))
        // By its own judgement any name may be a mangled one, and of any length.
        .enable_demangling(false)
        .enable_code_info(true)
        .enable_inlined_fns(inline)
        .build()
}

/// Tells the linker's marks from functions: files for arm64 say where code (`$x`) and data (`$d`, `$d.1`) begin.
fn is_mark(name: &str) -> bool {
    matches!(name.as_bytes(), [b'$', b'x' | b'd', rest @ ..] if matches!(rest, [] | [b'.', ..]))
}

/// The function that lies around an address and the mark in front of it.
fn around(
    symbolizer: &Symbolizer,
    source: &Source<'_>,
    address: u64,
    mark: &Sym<'_>,
) -> Option<Functions> {
    let mut start = mark.addr;
    for _ in 0..MAX_MARKS {
        let before = Input::VirtOffset(start.checked_sub(1)?);
        let found = symbolizer.symbolize_single(source, before).ok()?;
        let sym = found.as_sym()?;
        if is_mark(&sym.name) {
            start = sym.addr;
            continue;
        }
        let end = sym.addr.checked_add(u64::try_from(sym.size?).ok()?)?;
        return (address < end).then(|| Functions {
            sizeless: None,
            named: vec![Named {
                name: bounded(&demangled(&sym.name)),
                line: mark.code_info.as_deref().and_then(line),
            }],
        });
    }
    None
}

fn functions(symbolized: Symbolized<'_>) -> Option<Functions> {
    let sym: Sym<'_> = symbolized.into_sym()?;
    if sym.name.is_empty() {
        return None;
    }
    let outer = Named {
        name: bounded(&demangled(&sym.name)),
        line: sym.code_info.as_deref().and_then(line),
    };
    // Aliases of one function are no calls; functions of one bare name in two files are.
    let file = |info: Option<&CodeInfo<'_>>| info.map(|info| info.to_path().into_owned());
    let own_file = file(sym.code_info.as_deref());
    let is_other =
        |f: &&InlinedFn<'_>| f.name != sym.name || file(f.code_info.as_ref()) != own_file;
    let callees = sym.inlined.iter().filter(is_other);
    let inlined = callees.take(MAX_INLINED).map(|f| {
        let (name, line) = (demangled(&f.name), f.code_info.as_ref().and_then(line));
        let file = line.as_ref().map(|(file, _)| file.as_str());
        let qualified = file.and_then(|file| rust_paths::qualified(&name, file));
        Named {
            name: bounded(qualified.as_deref().unwrap_or(&name)),
            line,
        }
    });
    Some(Functions {
        sizeless: start_of_sizeless(&sym),
        named: std::iter::once(outer).chain(inlined).collect(),
    })
}

/// A function that debug information has in several parts (a cold one elsewhere) comes without a size and at 0; in which of its parts
/// an address lies was looked at.
fn start_of_sizeless(sym: &Sym<'_>) -> Option<u64> {
    (sym.size.is_none() && sym.addr != 0).then_some(sym.addr)
}

fn line(info: &CodeInfo<'_>) -> Option<(String, u32)> {
    Some((bounded(&info.to_path().to_string_lossy()), info.line?))
}

fn bounded(name: &str) -> String {
    match name.char_indices().find(|(at, _)| *at >= MAX_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(bounded("main"), "main");
        let cut = bounded(&"é".repeat(MAX_NAME));
        assert_eq!(cut.chars().count(), MAX_NAME / 2 + 1);
        assert!(cut.ends_with('…'));
    }
}
