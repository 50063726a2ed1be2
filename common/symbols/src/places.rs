//! What lies at an address of another process: a variable of a file, its heap, a stack, memory shared with others.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use elf::{Variables, demangled};

use crate::mappings::{Backing, FileKey, Mapping, maps};
use crate::{Symbolizer, debugfile, files};

/// Files whose variables are kept.
const MAX_FILES: usize = 64;
/// Memory that they take together, about.
const MAX_BYTES: usize = 64 << 20;
/// Places remembered; more are looked up in vain.
const MAX_PLACES: usize = 65_536;

/// An address in a process that the BPF side has interned, to be looked up while the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// What the BPF side calls it.
    pub id: u64,
    /// The process.
    pub tgid: u32,
    /// Where in its address space.
    pub address: u64,
    /// When, on CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
}

/// What is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What to call it; empty: nothing is known.
    pub name: String,
    /// It has a name that means the same in every run: a variable.
    pub is_variable: bool,
    /// Where in a file, if the memory is shared with whoever else has that mapped.
    pub file: Option<InFile>,
}

/// A byte of a file, the same in all mappings of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InFile {
    /// Major and minor number: inodes of another file system may have the same number.
    pub device: (u32, u32),
    /// The file's number there.
    pub inode: u64,
    /// Bytes.
    pub offset: u64,
}

/// Looks addresses up, and remembers: variables of files also when the process is gone.
#[derive(Default)]
pub struct Places {
    files: HashMap<FileKey, Arc<Variables>>,
    bytes: usize,
    known: HashMap<u64, Place>,
    /// Processes that were gone, or had no such mapping.
    missed: u64,
}

impl Places {
    /// Looks up what the BPF side has interned. `past` knows which files were mapped in processes that are gone.
    pub fn learn(&mut self, addresses: &[Address], mut past: Option<&mut Symbolizer>) {
        let mut maps: HashMap<u32, Vec<(Mapping, bool)>> = HashMap::new();
        for address in addresses {
            if self.known.len() >= MAX_PLACES {
                self.missed += 1;
                continue;
            }
            let (tgid, time_ns) = (address.tgid, address.time_ns);
            let has_ended = |past: &&mut Symbolizer| !past.lives_on(tgid, time_ns);
            let mut place = None;
            if !past.as_ref().is_some_and(has_ended) {
                let read = || maps::all(tgid).unwrap_or_default();
                let mappings = maps.entry(tgid).or_insert_with(read);
                place = self.look_up(tgid, mappings, address.address);
            }
            match place.or_else(|| self.look_back(past.as_deref_mut()?, address)) {
                Some(place) => drop(self.known.insert(address.id, place)),
                None => self.missed += 1,
            }
        }
    }

    /// Address of a variable of the program that process `tgid` runs, by its name in the file's symbol table; `None`: it has none, or the
    /// process may not be looked at.
    pub fn variable_of_program(&mut self, tgid: u32, name: &str) -> Option<u64> {
        let program = std::fs::read_link(format!("/proc/{tgid}/exe")).ok()?;
        self.variable_of(tgid, name, |path| *path == *program.as_os_str().as_bytes())
    }

    /// The same of the library with this file name that it has mapped.
    pub fn variable_of_library(&mut self, tgid: u32, library: &str, name: &str) -> Option<u64> {
        let is_it =
            |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(library.as_bytes());
        self.variable_of(tgid, name, is_it)
    }

    fn variable_of(
        &mut self,
        tgid: u32,
        name: &str,
        is_file: impl Fn(&[u8]) -> bool,
    ) -> Option<u64> {
        let mappings = maps::all(tgid).ok()?;
        let mut mappings = mappings.iter().map(|(mapping, _)| mapping);
        let mapping = mappings.find(|mapping| is_file(&mapping.path))?;
        let variables = self.variables_in(tgid, mapping)?;
        let bias = variables.bias(mapping.start, mapping.offset)?;
        Some(variables.address_of(name)?.wrapping_add(bias))
    }

    /// What was found for an interned address.
    pub fn get(&self, id: u64) -> Option<&Place> {
        self.known.get(&id)
    }

    /// Addresses that nothing was found out about.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    fn look_up(&mut self, tgid: u32, mappings: &[(Mapping, bool)], address: u64) -> Option<Place> {
        let after = mappings.partition_point(|(m, _)| m.start <= address);
        let at = after.checked_sub(1)?;
        let (mapping, shared) = mappings.get(at).filter(|(m, _)| address < m.end)?;
        let path = String::from_utf8_lossy(&mapping.path).into_owned();
        if let Backing::File(key) = mapping.backing {
            let offset = mapping.file_offset(address);
            let mut place = self.variable(tgid, mapping, address).unwrap_or(Place {
                name: format!("{}+{offset:#x}", base(&path)),
                is_variable: false,
                file: None,
            });
            place.file = shared.then_some(InFile {
                device: (key.major, key.minor),
                inode: key.inode,
                offset,
            });
            return Some(place);
        }
        if path.is_empty() {
            // The part of .bss behind the file's last page is anonymous memory that follows it.
            let before = mappings[..at]
                .last()
                .filter(|(before, _)| before.end == mapping.start);
            let of_file = before.and_then(|(before, _)| self.variable(tgid, before, address));
            return Some(of_file.unwrap_or_else(|| plain("[anon]")));
        }
        let is_memory = matches!(path.as_str(), "[heap]" | "[stack]");
        Some(plain(if is_memory { &path } else { "[anon]" }))
    }

    /// The variable at an address of a process that is gone: a file's data lies above its code, and nothing between them.
    fn look_back(&mut self, past: &mut Symbolizer, address: &Address) -> Option<Place> {
        let (code, module) = past.code_below(address.tgid, address.time_ns, address.address)?;
        let variables = self.variables_of(&code, || {
            let (file, debug) = past.with_debug_file(module)?;
            Some(Variables::read(file, debug.as_ref()))
        })?;
        named(&variables, &code, address.address)
    }

    /// The variable at `address`, which lies in `mapping` or right behind it.
    fn variable(&mut self, tgid: u32, mapping: &Mapping, address: u64) -> Option<Place> {
        let variables = self.variables_in(tgid, mapping)?;
        named(&variables, mapping, address)
    }

    /// The data of the file that a living process maps.
    fn variables_in(&mut self, tgid: u32, mapping: &Mapping) -> Option<Arc<Variables>> {
        self.variables_of(mapping, || {
            let opened = files::open_mapped(tgid, mapping.start, mapping.end).ok()?;
            let debug = debugfile::of_opened(&opened, &mapping.path);
            Some(Variables::read(&opened.file, debug.as_ref()))
        })
    }

    /// The data of the file behind a mapping, which is read once.
    fn variables_of(
        &mut self,
        mapping: &Mapping,
        read: impl FnOnce() -> Option<Variables>,
    ) -> Option<Arc<Variables>> {
        let Backing::File(key) = mapping.backing else {
            return None;
        };
        if let Some(known) = self.files.get(&key) {
            return Some(Arc::clone(known));
        }
        // A file that could not be opened now may be later, by another process.
        let read = Arc::new(read()?);
        self.bytes += read.bytes();
        if self.files.len() >= MAX_FILES || self.bytes > MAX_BYTES {
            self.files.clear();
            self.bytes = read.bytes();
        }
        self.files.insert(key, Arc::clone(&read));
        Some(read)
    }
}

/// What a file has at `address`, given one of its mappings.
fn named(variables: &Variables, mapping: &Mapping, address: u64) -> Option<Place> {
    let bias = variables.bias(mapping.start, mapping.offset)?;
    let elf_address = address.wrapping_sub(bias);
    if !variables.is_loaded(elf_address) {
        return None;
    }
    let found = variables.find(elf_address);
    let path = String::from_utf8_lossy(&mapping.path);
    let module = base(&path);
    let section = found.section.unwrap_or_default();
    let is_variable = found.variable.is_some();
    let variable = found
        .variable
        .map(|(name, offset)| (Variables::cut(&demangled(name)), offset));
    let name = match variable {
        Some((name, 0)) => format!("{module}{section}: {name}"),
        Some((name, offset)) => format!("{module}{section}: {name}+{offset:#x}"),
        None => format!("{module}{section}+{elf_address:#x}"),
    };
    Some(Place {
        name,
        is_variable,
        file: None,
    })
}

fn plain(name: &str) -> Place {
    Place {
        name: name.into(),
        is_variable: false,
        file: None,
    }
}

fn base(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[used]
    static GLOBAL: Mutex<u64> = Mutex::new(7);

    fn place_of(address: usize) -> Place {
        let mut places = Places::default();
        places.learn(
            &[Address {
                id: 1,
                tgid: std::process::id(),
                address: address as u64,
                time_ns: 0,
            }],
            None,
        );
        places.get(1).expect("our own memory").clone()
    }

    #[test]
    fn variables_heap_and_stack_are_told_apart() {
        let global = place_of((&raw const GLOBAL).addr());
        assert!(
            global.is_variable && global.name.contains("GLOBAL"),
            "{global:?}"
        );
        let local = 0_u8;
        // A test runs in a thread, whose stack is nameless memory.
        assert_eq!(place_of((&raw const local).addr()).name, "[anon]");
        // SAFETY: takes nothing; gives the end of the heap.
        let end = unsafe { libc::sbrk(0) }.addr();
        assert_eq!(place_of(end - 8).name, "[heap]");
    }

    #[test]
    fn a_variable_of_a_program_is_found_by_its_name() {
        let mut places = Places::default();
        let own = std::process::id();
        // The C compiler's start of every program has this one, with its own address in it.
        let found = places.variable_of_program(own, "__dso_handle");
        let address = found.expect("a variable");
        let mut bytes = [0; 8];
        crate::memory::read(own, address, &mut bytes).expect("our own memory");
        assert_eq!(u64::from_ne_bytes(bytes), address);
        assert_eq!(places.variable_of_program(own, "no_such_variable"), None);
        assert_eq!(places.variable_of_program(u32::MAX, "errno"), None);
    }

    #[test]
    fn what_is_gone_is_counted() {
        let mut places = Places::default();
        places.learn(
            &[Address {
                id: 1,
                tgid: u32::MAX,
                address: 0,
                time_ns: 0,
            }],
            None,
        );
        assert_eq!((places.missed(), places.get(1)), (1, None));
    }
}
