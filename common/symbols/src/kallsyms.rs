//! `/proc/kallsyms`: the kernel's, its modules' and BPF programs' functions.
//!
//! Read by ourselves because blazesym keeps neither the module nor an end: it names any address after the last symbol.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

/// 6–20 MiB on real kernels.
const MAX_BYTES: u64 = 512 << 20;
/// The kernel gives no more than a page at once.
const PIECE: usize = 4 << 10;
/// kallsyms has no sizes; nothing in the kernel is longer, and the gaps between modules are.
const MAX_FUNCTION: u64 = 256 << 10;

#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    name: u32,
    length: u16,
    module: u16,
}

/// Functions by address.
#[derive(Debug, Default)]
pub(super) struct Kallsyms {
    symbols: Vec<Symbol>,
    names: String,
    modules: Vec<Arc<str>>,
}

impl Kallsyms {
    /// Reads the running kernel's symbols.
    pub(super) fn load() -> io::Result<Self> {
        let file = File::open("/proc/kallsyms")?.take(MAX_BYTES);
        Self::read(&mut BufReader::with_capacity(PIECE, file))
    }

    /// Whether the kernel hid all addresses (kptr_restrict) or has no symbols.
    pub(super) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Name and module of the function at `address`.
    pub(super) fn find(&self, address: u64) -> Option<(&str, &Arc<str>)> {
        let behind = self.symbols.partition_point(|s| s.address <= address);
        let symbol = self.symbols.get(behind.checked_sub(1)?)?;
        if address - symbol.address > MAX_FUNCTION {
            return None;
        }
        let start = symbol.name as usize;
        let name = self.names.get(start..start + usize::from(symbol.length))?;
        Some((name, &self.modules[usize::from(symbol.module)]))
    }

    /// Line by line: the whole of it would be more memory than all that is kept.
    fn read(lines: &mut impl BufRead) -> io::Result<Self> {
        let mut found = Self {
            modules: vec!["[kernel]".into()],
            ..Self::default()
        };
        let mut ids: HashMap<Arc<str>, u16> = HashMap::new();
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            found.add(&line, &mut ids);
            line.clear();
        }
        // Stable: of several names for one address the first stays in front of the others.
        found.symbols.sort_by_key(|s| s.address);
        found.symbols.dedup_by_key(|s| s.address);
        found.symbols.shrink_to_fit();
        found.names.shrink_to_fit();
        Ok(found)
    }

    fn add(&mut self, line: &[u8], ids: &mut HashMap<Arc<str>, u16>) {
        let parsed = std::str::from_utf8(line).ok().and_then(parse_line);
        let Some((address, name, module)) = parsed else {
            return;
        };
        let module = module.map_or(0, |module| self.module(module, ids));
        let (Ok(at), Ok(length)) = (u32::try_from(self.names.len()), u16::try_from(name.len()))
        else {
            return;
        };
        self.names.push_str(name);
        self.symbols.push(Symbol {
            address,
            name: at,
            length,
            module,
        });
    }

    fn module(&mut self, name: &str, ids: &mut HashMap<Arc<str>, u16>) -> u16 {
        if let Some(id) = ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        self.modules.push(Arc::clone(&name));
        let id = u16::try_from(self.modules.len() - 1).unwrap_or(0);
        ids.insert(name, id);
        id
    }
}

/// `ADDRESS TYPE NAME [MODULE]`; `None` for data and hidden addresses.
fn parse_line(line: &str) -> Option<(u64, &str, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    let name = words.next()?;
    (is_code && address != 0).then(|| (address, name, words.next()))
}

#[cfg(test)]
mod tests {
    use super::Kallsyms;

    const SAMPLE: &[u8] = b"\
ffffffff81000000 T _stext
ffffffff81000100 t schedule
ffffffff81000100 t schedule_alias
ffffffff81000180 d some_data
ffffffffc0000000 t nft_do_chain\t[nf_tables]
ffffffffc0100000 t bpf_prog_6deef7357e7b4530_sched\t[bpf]
torn
";

    fn parse(mut lines: &[u8]) -> Kallsyms {
        Kallsyms::read(&mut lines).expect("memory has no errors")
    }

    #[test]
    fn names_and_modules() {
        let symbols = parse(SAMPLE);
        let find = |a| symbols.find(a).map(|(n, m)| (n.to_owned(), m.to_string()));
        let expect = |n: &str, m: &str| Some((n.to_owned(), m.to_owned()));
        assert_eq!(find(0xffff_ffff_8100_0000), expect("_stext", "[kernel]"));
        assert_eq!(find(0xffff_ffff_8100_01ff), expect("schedule", "[kernel]"));
        assert_eq!(
            find(0xffff_ffff_c000_0010),
            expect("nft_do_chain", "[nf_tables]")
        );
        assert_eq!(
            find(0xffff_ffff_c010_0010),
            expect("bpf_prog_6deef7357e7b4530_sched", "[bpf]")
        );
        assert_eq!(
            find(0xffff_ffff_9000_0000),
            None,
            "not the last symbol before a gap"
        );
        assert_eq!(find(0x1000), None);
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(parse(b"0000000000000000 T _stext\n0000000000000000 t x\n").is_empty());
    }
}
