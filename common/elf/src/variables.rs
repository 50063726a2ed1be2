//! Names of variables: the data symbols of an ELF file.

use std::fs::File;
use std::ops::Range;

use object::read::ReadRef;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::load::Load;
use crate::source::{Limits, Pieces};

/// Largest table read at once: symbol tables of browsers have 30 MB; and all that is read of one file. Longer names are not
/// read.
pub(crate) const LIMITS: Limits = Limits {
    piece: 64 << 20,
    name: 1024,
    all: 192 << 20,
};
/// More symbols than any real file has, and more variables.
pub(crate) const MAX_SYMBOLS: usize = 4 << 20;
const MAX_VARIABLES: usize = 1 << 19;
/// Longer names are cut.
const MAX_NAME: usize = 256;

#[derive(Debug)]
struct Variable {
    address: u64,
    size: u64,
    /// The name in the symbol table.
    name: Box<str>,
}

/// The data of one file.
#[derive(Debug, Default)]
pub struct Variables {
    loads: Vec<Load>,
    sections: Vec<(Range<u64>, Box<str>)>,
    /// By address.
    variables: Vec<Variable>,
}

/// The section and the variable at an ELF address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Name of the section.
    pub section: Option<&'a str>,
    /// Name in the symbol table, and how far behind its beginning.
    pub variable: Option<(&'a str, u64)>,
}

impl Variables {
    /// Reads the tables, also of its debug file if there is one; a file that makes no sense has none.
    pub fn read(file: &File, debug: Option<&File>) -> Self {
        let pieces = Pieces::new(file, LIMITS);
        let Ok(elf) = object::File::parse(&pieces) else {
            return Self::default();
        };
        let loads = elf.segments().map(|segment| {
            let (offset, file_size) = segment.file_range();
            Load {
                address: segment.address(),
                offset,
                file_size,
                memory_size: segment.size(),
                flags: 0,
            }
        });
        let sections = elf.sections().filter_map(|section| {
            let start = section.address();
            let end = start.checked_add(section.size())?;
            let name = section.name().ok().filter(|_| start != 0)?;
            // A thread's variables are not where their section is.
            (!name.starts_with(".t")).then(|| (start..end, Self::cut(name)))
        });
        let mut variables = data_symbols(&elf);
        if let Some(file) = debug {
            let pieces = Pieces::new(file, LIMITS);
            // Only names and addresses are taken: its sections have no bytes.
            let elf = object::File::parse(&pieces);
            variables.extend(elf.iter().flat_map(data_symbols));
        }
        // The first of several names for one place stays.
        variables.sort_by_key(|variable| variable.address);
        Self {
            loads: loads.take(4096).collect(),
            sections: sections.take(4096).collect(),
            variables,
        }
    }

    /// The longest beginning of a name that is kept.
    pub fn cut(name: &str) -> Box<str> {
        name.chars().take(MAX_NAME).collect::<String>().into()
    }

    /// Memory that they take, about.
    pub fn bytes(&self) -> usize {
        let names = self.variables.iter().map(|variable| variable.name.len());
        self.variables.len() * size_of::<Variable>() + names.sum::<usize>()
    }

    /// The number to add to ELF addresses if byte `offset` of the file is mapped at `start`.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // Mappings begin at page boundaries, segments anywhere in the first page. The one with more of the file wins: the
        // page between two segments is mapped for both.
        let holding = self.loads.iter().filter(|load| load.holds(offset));
        let load = holding.max_by_key(|load| load.offset)?;
        Some(load.bias(start, offset))
    }

    /// True if a segment reaches this ELF address.
    pub fn is_loaded(&self, address: u64) -> bool {
        let covers = |load: &Load| {
            address
                .checked_sub(load.address)
                .is_some_and(|at| at < load.memory_size)
        };
        self.loads.iter().any(covers)
    }

    /// ELF address of the variable of this name; `None`: there is none.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        let mut variables = self.variables.iter();
        variables
            .find(|variable| &*variable.name == name)
            .map(|variable| variable.address)
    }

    /// The variable at an ELF address.
    pub fn find(&self, address: u64) -> Found<'_> {
        let section = self
            .sections
            .iter()
            .find(|(range, _)| range.contains(&address));
        let behind = self.variables.partition_point(|v| v.address <= address);
        let covers = |variable: &&Variable| address - variable.address < variable.size.max(1);
        // Large variables overlap few others: those right before are looked at.
        let variable = self.variables[..behind].iter().rev().take(16).find(covers);
        Found {
            section: section.map(|(_, name)| &**name),
            variable: variable.map(|v| {
                // The first of those with the same address.
                let first = self.variables.partition_point(|o| o.address < v.address);
                let same = self.variables[first..behind]
                    .iter()
                    .find(|o| o.size == v.size);
                (&*same.unwrap_or(v).name, address - v.address)
            }),
        }
    }
}

fn data_symbols<'a, R: ReadRef<'a>>(elf: &object::File<'a, R>) -> Vec<Variable> {
    elf.symbols()
        .chain(elf.dynamic_symbols())
        .take(MAX_SYMBOLS)
        .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.is_definition())
        .filter_map(|symbol| {
            Some(Variable {
                address: symbol.address(),
                size: symbol.size(),
                name: Variables::cut(symbol.name().ok().filter(|name| !name.is_empty())?),
            })
        })
        .take(MAX_VARIABLES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has to be in the symbol table: looked up by the test below.
    #[used]
    static LOOKED_UP: [u32; 4] = [1, 2, 3, 4];

    #[test]
    fn a_variable_of_this_program_is_found_by_its_address() {
        let file = File::open("/proc/self/exe").expect("ourselves");
        let variables = Variables::read(&file, None);
        let address = (&raw const LOOKED_UP[2]).addr() as u64;
        let (start, offset) = mapping_of(address).expect("it is mapped");
        let bias = variables.bias(start, offset).expect("a segment");
        assert!(variables.is_loaded(address - bias));
        let found = variables.find(address - bias);
        assert_eq!(found.section, Some(".rodata"));
        let (name, offset) = found.variable.expect("a symbol");
        assert!(name.contains("LOOKED_UP"), "{name}");
        assert_eq!(offset, 8);
        let name = symbol_of(&variables, "LOOKED_UP");
        assert_eq!(variables.address_of(&name), Some(address - bias - 8));
        assert_eq!(variables.address_of("no_such_variable"), None);
    }

    /// Start and file offset of our mapping that holds an address.
    fn mapping_of(address: u64) -> Option<(u64, u64)> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
        let number = |text| u64::from_str_radix(text, 16).ok();
        maps.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (start, end) = words.next()?.split_once('-')?;
            let (start, end) = (number(start)?, number(end)?);
            let offset = number(words.nth(1)?)?;
            (start <= address && address < end).then_some((start, offset))
        })
    }

    fn symbol_of(variables: &Variables, part: &str) -> String {
        let mut all = variables.variables.iter();
        let found = all.find(|variable| variable.name.contains(part));
        found.expect("a symbol").name.to_string()
    }

    #[test]
    fn what_is_no_elf_file_has_no_variables() {
        let file = File::open("/etc/passwd").expect("a file");
        let variables = Variables::read(&file, None);
        assert!(variables.bias(0, 0).is_none());
        assert_eq!(
            variables.find(0x1000),
            Found {
                section: None,
                variable: None
            }
        );
    }
}
