//! Where functions begin in the files that a process has mapped, for probes on them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;

use anyhow::{Result, bail};
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, SectionIndex};

use super::files;

/// Libraries of C have a few MB.
const MAX_BYTES: u64 = 64 << 20;

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
        let bytes = fs::read(format!("/proc/{tgid}/maps")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut found: Vec<Self> = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(6, ' ');
            let (Some(range), Some(permissions)) = (fields.next(), fields.next()) else {
                continue;
            };
            let path = fields.nth(3).unwrap_or_default().trim_start();
            let base = path.rsplit('/').next().unwrap_or_default();
            let is_code = permissions.contains('x') && path.starts_with('/');
            if !is_code || !is_wanted(base) || found.iter().any(|known| known.path == path) {
                continue;
            }
            let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
            let range = range.split_once('-');
            let range =
                range.and_then(|(start, end)| Some((hexadecimal(start)?, hexadecimal(end)?)));
            let Some((start, end)) = range else { continue };
            // A probe is on the file itself.
            let opened = files::open_mapped(tgid, start, end);
            if let Some(opened) = opened.ok().filter(|opened| !opened.facts.copied) {
                found.push(Self {
                    path: path.to_owned(),
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
    let versions = sections.versions(endian, bytes)?;
    let mut found = HashMap::new();
    // Programs that were linked statically have no dynamic symbols.
    for table in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let symbols = sections.symbols(endian, bytes, table)?;
        for (index, symbol) in symbols.enumerate() {
            let is_function = [elf::STT_FUNC, elf::STT_GNU_IFUNC].contains(&symbol.st_type());
            if !is_function || symbol.st_shndx(endian) == elf::SHN_UNDEF {
                continue;
            }
            let Ok(name) = symbol.name(endian, symbols.strings()) else {
                continue;
            };
            let Some(name) = names.iter().find(|wanted| wanted.as_bytes() == name) else {
                continue;
            };
            let is_old = table == elf::SHT_DYNSYM
                && symbols.section() != SectionIndex(0)
                && versions
                    .as_ref()
                    .is_some_and(|versions| versions.version_index(endian, index).is_hidden());
            let address = symbol.st_value(endian);
            let offset = segments.iter().find_map(|segment| {
                let start = segment.p_vaddr(endian);
                let within = address.checked_sub(start)?;
                let is_there =
                    segment.p_type(endian) == elf::PT_LOAD && within < segment.p_filesz(endian);
                is_there.then(|| segment.p_offset(endian).wrapping_add(within))
            });
            if let Some(offset) = offset.filter(|_| !is_old) {
                found.entry((*name).to_owned()).or_insert(offset);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
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
}
