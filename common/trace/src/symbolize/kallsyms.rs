//! The kernel's own symbol table, with the module that each symbol belongs to.

use std::collections::HashSet;
use std::io::{self, BufRead};
use std::sync::Arc;

/// No function is larger; an address further from its symbol is in something that has none.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// Symbols by address.
#[derive(Debug, Default)]
pub(crate) struct Kallsyms {
    symbols: Vec<Symbol>,
    hidden: bool,
}

#[derive(Debug)]
struct Symbol {
    address: u64,
    text: bool,
    name: Box<str>,
    module: Arc<str>,
}

impl Kallsyms {
    /// Reads a table in the format of `/proc/kallsyms`.
    pub(crate) fn read(mut reader: impl BufRead) -> io::Result<Self> {
        let mut modules: HashSet<Arc<str>> = HashSet::from(["[kernel]".into()]);
        let mut symbols = Vec::with_capacity(1 << 17);
        let mut hidden = true;
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            if let Some(symbol) = parse(&line, &mut modules) {
                hidden &= symbol.address == 0;
                symbols.push(symbol);
            }
            line.clear();
        }
        symbols.retain(|symbol| symbol.address != 0);
        symbols.sort_by_key(|symbol| symbol.address);
        Ok(Self { symbols, hidden })
    }

    /// Whether the kernel told no addresses.
    pub(crate) fn hidden(&self) -> bool {
        self.hidden
    }

    /// Function and module at an address.
    pub(crate) fn find(&self, address: u64) -> Option<(&str, &Arc<str>)> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        let nearest = self.symbols.get(after.checked_sub(1)?)?;
        if !nearest.text || address - nearest.address > MAX_FUNCTION_BYTES {
            return None;
        }
        // Several names at one address: the table lists the usual one last, `__x64_sys_fork` after `__do_sys_fork`.
        Some((&nearest.name, &nearest.module))
    }
}

fn parse(line: &str, modules: &mut HashSet<Arc<str>>) -> Option<Symbol> {
    let mut fields = line.split_ascii_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = fields.next()?;
    let name = fields.next()?;
    let module = match fields.next() {
        None => "[kernel]",
        Some("[bpf]") => "[bpf]",
        Some(module) => module.trim_start_matches('[').trim_end_matches(']'),
    };
    let module = modules.get(module).cloned().unwrap_or_else(|| {
        let module: Arc<str> = module.into();
        modules.insert(Arc::clone(&module));
        module
    });
    Some(Symbol {
        address,
        // Section ends are of text type, and what follows them is nothing.
        text: matches!(kind, "t" | "T" | "w" | "W") && !matches!(name, "_etext" | "_einittext"),
        name: name.into(),
        module,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "ffffffff81000100 T first
ffffffff81000100 t also_first
ffffffff81000200 t second
ffffffff81000300 T _etext
ffffffff81000400 D some_data
ffffffffc0001000 t bpf_prog_6deef7357e7b4530_trace\t[bpf]
ffffffffc0002000 t ext4_readdir\t[ext4]
garbage
";

    #[test]
    fn finds_functions_and_their_modules() {
        let table = Kallsyms::read(TABLE.as_bytes()).unwrap();
        let find = |address| table.find(address).map(|(name, module)| (name, &**module));
        assert!(!table.hidden());
        assert_eq!(find(0xffff_ffff_8100_00ff), None);
        assert_eq!(find(0xffff_ffff_8100_02ff), Some(("second", "[kernel]")));
        assert_eq!(find(0xffff_ffff_8100_0300), None);
        assert_eq!(find(0xffff_ffff_8100_0404), None);
        assert_eq!(
            find(0xffff_ffff_c000_1004),
            Some(("bpf_prog_6deef7357e7b4530_trace", "[bpf]"))
        );
        assert_eq!(find(0xffff_ffff_c000_2004), Some(("ext4_readdir", "ext4")));
        assert_eq!(find(u64::MAX), None);
    }

    #[test]
    fn hidden_addresses_are_told() {
        let text = "0000000000000000 T a\n0000000000000000 t b\n";
        let table = Kallsyms::read(text.as_bytes()).unwrap();
        assert!(table.hidden());
        assert_eq!(table.find(0x1000), None);
    }
}
