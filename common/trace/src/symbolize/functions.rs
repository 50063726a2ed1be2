//! Where functions begin in the files that a process has mapped, for probes on them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use anyhow::{Result, bail};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use super::files;
use crate::mappings::maps;

/// Libraries of C have a few MB.
const MAX_BYTES: u64 = 64 << 20;
/// Program headers that are looked at, and those among them that are loaded; real files have 10 and 4. Every symbol may have to be
/// looked up in all of them.
const MAX_HEADERS: usize = 4096;
const MAX_LOADS: usize = 64;

/// A file that a process has mapped as code.
#[derive(Debug)]
pub struct Library {
    /// As the process names it.
    pub path: String,
    file: File,
}

impl Library {
    /// The files among a process's code whose base name `is_wanted`, each once.
    pub fn mapped(tgid: u32, is_wanted: impl Fn(&str) -> bool) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for mapping in maps::read(tgid).unwrap_or_default() {
            let path = String::from_utf8_lossy(&mapping.path);
            let base = path.rsplit('/').next().unwrap_or_default();
            let is_file = path.starts_with('/');
            if !is_file || !is_wanted(base) || found.iter().any(|known| known.path == path) {
                continue;
            }
            // A probe is on the file itself.
            let opened = files::open_mapped(tgid, mapping.start, mapping.end);
            if let Some(opened) = opened.ok().filter(|opened| !opened.facts.copied) {
                found.push(Self {
                    path: path.into_owned(),
                    file: opened.file,
                });
            }
        }
        found
    }

    /// A path to this very file, wherever it is mounted, for as long as this lives.
    pub fn probe_path(&self) -> String {
        files::self_path(&self.file)
    }

    /// File offsets of functions by name. Of several versions of one, the default's: what programs are linked to today.
    ///
    /// # Errors
    ///
    /// When it is no ELF file, or a broken or huge one.
    pub fn functions(&self, names: &[&str]) -> Result<HashMap<String, u64>> {
        let mut bytes = Vec::new();
        (&self.file).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            bail!("{} is larger than {} MB", self.path, MAX_BYTES >> 20);
        }
        functions(&bytes, names)
    }
}

fn functions(bytes: &[u8], names: &[&str]) -> Result<HashMap<String, u64>> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let segments = header.program_headers(endian, bytes)?;
    let segments = segments.iter().take(MAX_HEADERS);
    let loads: Vec<_> = segments
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .take(MAX_LOADS)
        .collect();
    let offset = |address: u64| {
        loads.iter().find_map(|load| {
            let within = address.checked_sub(load.p_vaddr(endian))?;
            let is_there = within < load.p_filesz(endian);
            is_there.then(|| load.p_offset(endian).wrapping_add(within))
        })
    };
    let versions = sections.gnu_versym(endian, bytes)?;
    let versions = versions.map_or(&[][..], |(versions, _)| versions);
    let mut found = HashMap::new();
    // Programs that were linked statically have no dynamic symbols.
    for table in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let symbols = sections.symbols(endian, bytes, table)?;
        if symbols.is_empty() {
            continue;
        }
        let strings = sections.section(symbols.string_section())?;
        let strings = strings.data(endian, bytes)?;
        for (index, symbol) in symbols.enumerate() {
            let is_function = [elf::STT_FUNC, elf::STT_GNU_IFUNC].contains(&symbol.st_type());
            let version = versions.get(index.0).map(|version| version.0.get(endian));
            let is_old = table == elf::SHT_DYNSYM && version.is_some_and(|v| v.is_hidden());
            if !is_function || is_old || symbol.st_shndx(endian) == elf::SHN_UNDEF {
                continue;
            }
            let name_at = usize::try_from(symbol.st_name(endian))?;
            let Some(name) = names
                .iter()
                .find(|name| is_string(strings, name_at, name.as_bytes()))
            else {
                continue;
            };
            if !found.contains_key(*name)
                && let Some(offset) = offset(symbol.st_value(endian))
            {
                found.insert((*name).to_owned(), offset);
            }
        }
    }
    Ok(found)
}

/// Whether that name is there. Where it ends otherwise is not looked for: a million symbols may name one string of a million bytes.
fn is_string(strings: &[u8], at: usize, name: &[u8]) -> bool {
    let rest = strings.get(at..).and_then(|rest| rest.strip_prefix(name));
    rest.is_some_and(|rest| rest.first() == Some(&0))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_default_version_is_found() {
        let libraries = Library::mapped(std::process::id(), |name| name.starts_with("libc.so"));
        let [library] = &libraries[..] else {
            panic!("one C library, not {libraries:?}")
        };
        let found = library
            .functions(&[
                "pthread_mutex_lock",
                "pthread_cond_wait",
                "no_such_function",
            ])
            .expect("an ELF file");
        assert_eq!(found.len(), 2);
        // nm -D: the one with @@ is the default; the other is another function.
        let said = std::process::Command::new("nm")
            .args(["-D", "--defined-only", &library.path])
            .output()
            .expect("nm");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let line = said
            .lines()
            .find(|line| line.contains(" pthread_cond_wait@@"))
            .expect("a default version");
        let address = u64::from_str_radix(&line[..16], 16).expect("an address");
        // Code lies at its address in libc's file.
        assert_eq!(found["pthread_cond_wait"], address);
    }

    #[test]
    fn broken_files_are_errors() {
        assert!(functions(b"", &["f"]).is_err());
        assert!(functions(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0], &["f"]).is_err());
    }

    /// A file with these program headers (type, address; each of 4096 bytes at its address), function symbols (name's place, address)
    /// and strings.
    fn program(segments: &[(u64, u64)], symbols: &[(u64, u64)], strings: &[u8]) -> Vec<u8> {
        let segments_at = 64;
        let symbols_at = segments_at + 56 * segments.len() as u64;
        let strings_at = symbols_at + 24 * symbols.len() as u64;
        let sections_at = (strings_at + strings.len() as u64).next_multiple_of(8);
        let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        let mut put = |words: &[u64]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
        put(&[0, segments_at, sections_at, 64 << 32 | 56 << 48]);
        put(&[segments.len() as u64 | 64 << 16 | 3 << 32 | 2 << 48]);
        for (kind, address) in segments {
            put(&[*kind, *address, *address, 0, 4096, 4096, 1]);
        }
        for (name, address) in symbols {
            // A global function in the first section.
            put(&[name | 0x12 << 32 | 1 << 48, *address, 8]);
        }
        out.extend(strings);
        out.resize(usize::try_from(sections_at).expect("small"), 0);
        let mut put = |words: &[u64]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
        put(&[0; 8]);
        let size = strings_at - symbols_at;
        put(&[2 << 32, 0, 0, symbols_at, size, 2, 8, 24]);
        put(&[3 << 32, 0, 0, strings_at, strings.len() as u64, 0, 1, 0]);
        out
    }

    #[test]
    fn the_first_definition_with_an_offset_counts() {
        let segments = [(6, 0x1000), (1, 0x2000), (1, 0x4000)];
        let symbols = [(1, 0x9000), (3, 0x4010), (1, 0x2020), (1, 0x4020)];
        let file = program(&segments, &symbols, b"\0f\0g\0ff\0");
        let found = functions(&file, &["f", "g", "ff", "h"]).expect("an ELF file");
        let expected = [("f".to_owned(), 0x2020), ("g".to_owned(), 0x4010)];
        assert_eq!(found, HashMap::from(expected));
    }

    #[test]
    fn headers_are_looked_at_up_to_a_limit() {
        for (before, found) in [(MAX_HEADERS - 1, 1), (MAX_HEADERS, 0)] {
            let mut segments = vec![(6, 0x1000); before];
            segments.push((1, 0x2000));
            let file = program(&segments, &[(1, 0x2000)], b"\0f\0");
            let functions = functions(&file, &["f"]).expect("an ELF file");
            assert_eq!(functions.len(), found, "behind {before}");
        }
    }

    #[test]
    fn many_symbols_do_not_take_long() {
        // Of none is there an offset, and all share the longest of names: both had every symbol cost what the whole file has.
        let mut segments = vec![(1, 0x2000); 60_000];
        segments.push((1, 0x8000));
        let (own, longest): (Vec<_>, Vec<_>) = (0..200_000).map(|n| ((1, 0), (3 + n, 0))).unzip();
        let strings = [b"\0f\0".as_slice(), &[b'f'; 20_000_000], b"\0"].concat();
        let file = program(&segments, &[own, longest].concat(), &strings);
        let began = Instant::now();
        let found = functions(&file, &["f"]).expect("an ELF file");
        assert!(found.is_empty());
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{:?}",
            began.elapsed()
        );
    }
}
