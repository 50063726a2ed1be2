//! Names a batch of addresses of one file.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use xz2::bufread::XzDecoder;
use xz2::stream::Stream;

use super::debugfile::{self, DebugFile};
use super::elf::{self, Headers};
use super::elfnames::{ElfNames, Functions, Named};
use super::files::self_path;
use super::gofile::GoFile;
use super::modules::Modules;
use super::pclntab::Table;

/// What compressed sections may claim to unpack to.
const MAX_INFLATED: u64 = 4 << 30;
const MAX_MINI_DEBUG: u64 = 256 << 20;
/// What an honest `.gnu_debugdata` needs to unpack (xz -9 takes 65 MiB).
const MAX_XZ_MEMORY: u64 = 128 << 20;
/// Held in function tables of Go programs; kube-state-metrics, with 70,000 functions, takes 0.6 MiB.
const MAX_GO_BYTES: usize = 64 << 20;

/// What is known about a file once a name was asked of it.
struct Source {
    headers: Headers,
    debug: Option<DebugFile>,
    /// `.gnu_debugdata` unpacks to something reasonable.
    harmless: bool,
    /// A Go program's own table, read when all others left an address without a name.
    go: OnceCell<Option<Table>>,
}

/// Reads symbols, file by file.
pub(super) struct Resolver {
    names: ElfNames,
    sources: HashMap<u32, Source>,
    /// Of every file that names were asked of, also of those whose source was dropped since; some have none.
    pub(super) build_ids: HashMap<u32, Option<Vec<u8>>>,
    debug_dirs: Vec<PathBuf>,
    /// The library holds up to two files of each source open, we a third; all are dropped at once.
    max_sources: usize,
    pub(super) changed: u64,
    refused: u64,
}

/// An ELF address and, where known, its functions.
pub(super) type Resolved = (u64, Option<Functions>);

impl Resolver {
    pub(super) fn new(inline: bool, debug_dirs: Vec<PathBuf>, max_sources: usize) -> Self {
        let names = ElfNames::new(inline);
        Self {
            names,
            sources: HashMap::new(),
            build_ids: HashMap::new(),
            debug_dirs,
            max_sources,
            changed: 0,
            refused: 0,
        }
    }

    /// Files whose contents were not used.
    pub(super) fn refused(&self) -> u64 {
        self.refused + self.names.panics
    }

    /// One result per file offset; without headers the offset stands for the address.
    pub(super) fn resolve(
        &mut self,
        modules: &mut Modules,
        id: u32,
        offsets: &[u64],
    ) -> Vec<Resolved> {
        modules.reopen(id);
        if !self.sources.contains_key(&id) {
            self.load(modules, id);
        }
        let source = self.sources.get(&id);
        let address = |o: &u64| source.and_then(|s| s.headers.address(*o)).unwrap_or(*o);
        let addresses: Vec<u64> = offsets.iter().map(address).collect();
        let mut found = vec![None; addresses.len()];
        if let Some(source) = source {
            if let Some(debug) = &source.debug {
                let dwarf = debug.headers.dwarf && (debug.own || !debug.headers.supplementary);
                let dwarf = dwarf && is_contained(&debug.headers);
                fill(
                    &mut self.names,
                    &debug.file,
                    dwarf,
                    &addresses,
                    &debug.headers,
                    &mut found,
                );
            }
            match modules.get(id).unchanged() {
                Some(file) => {
                    if source.harmless {
                        let dwarf = source.headers.dwarf
                            && !source.headers.supplementary
                            && is_contained(&source.headers);
                        fill(
                            &mut self.names,
                            file,
                            dwarf,
                            &addresses,
                            &source.headers,
                            &mut found,
                        );
                    }
                    fill_go(source, file, &addresses, &mut found);
                }
                None => self.changed += 1,
            }
        }
        addresses.into_iter().zip(found).collect()
    }

    fn load(&mut self, modules: &Modules, id: u32) {
        let module = modules.get(id);
        let Some(file) = module.unchanged() else {
            return;
        };
        let Some(headers) = elf::read(file) else {
            self.refused += 1;
            return;
        };
        self.build_ids.insert(id, headers.build_id.clone());
        let harmless = headers
            .mini_debug
            .clone()
            .is_none_or(|range| unpacks_within(file, range));
        self.refused += u64::from(!harmless);
        let debug = (!headers.dwarf)
            .then(|| debugfile::find(module, &headers, &self.debug_dirs))
            .flatten();
        let go = self.sources.values().filter_map(|s| s.go.get()?.as_ref());
        let go_bytes: usize = go.map(Table::len).sum();
        if self.sources.len() >= self.max_sources || go_bytes > MAX_GO_BYTES {
            self.sources.clear();
            self.names.reset();
        }
        self.sources.insert(
            id,
            Source {
                headers,
                debug,
                harmless,
                go: OnceCell::new(),
            },
        );
    }
}

/// A file that refers to another would make the library open that by name in our mount namespace.
fn is_contained(headers: &Headers) -> bool {
    headers.debug_link.is_none() && headers.inflated <= MAX_INFLATED
}

/// Asks `file` for every address that has no name yet.
fn fill(
    names: &mut ElfNames,
    file: &File,
    dwarf: bool,
    addresses: &[u64],
    headers: &Headers,
    found: &mut [Option<Functions>],
) {
    let missing: Vec<usize> = (0..found.len()).filter(|&i| found[i].is_none()).collect();
    if missing.is_empty() {
        return;
    }
    let wanted: Vec<u64> = missing.iter().map(|&i| addresses[i]).collect();
    let answers = names.resolve(&self_path(file), dwarf, &wanted);
    for (at, functions) in missing.into_iter().zip(answers) {
        found[at] = functions.filter(|f| {
            f.sizeless
                .is_none_or(|s| headers.same_section(s, addresses[at]))
        });
    }
}

/// Asks a Go program's own table for every address without a name, or with that of a symbol of unknown size: of a stripped
/// program with C code, the last C symbol would name all Go code behind it.
fn fill_go(source: &Source, file: &File, addresses: &[u64], found: &mut [Option<Functions>]) {
    let doubtful = |f: &Option<Functions>| f.as_ref().is_none_or(|f| f.sizeless.is_some());
    if !found.iter().any(doubtful) {
        return;
    }
    let image = GoFile::new(file, &source.headers);
    let Some(table) = source.go.get_or_init(|| image.functions()) else {
        return;
    };
    for (&address, found) in addresses.iter().zip(found) {
        if !doubtful(found) {
            continue;
        }
        if let Some(name) = table.name(&image, address) {
            *found = Some(Functions {
                named: vec![Named { name, line: None }],
                sizeless: None,
            });
        }
    }
}

/// Unpacks once into nothing: the library unpacks into memory without a limit.
fn unpacks_within(file: &File, range: Range<u64>) -> bool {
    let Ok(stream) = Stream::new_stream_decoder(MAX_XZ_MEMORY, 0) else {
        return false;
    };
    let unpacked = XzDecoder::new_stream(BufReader::new(Slice { file, range }), stream);
    io::copy(&mut unpacked.take(MAX_MINI_DEBUG + 1), &mut io::sink())
        .is_ok_and(|n| n <= MAX_MINI_DEBUG)
}

/// Part of a file, read without moving its position.
struct Slice<'a> {
    file: &'a File,
    range: Range<u64>,
}

impl Read for Slice<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left =
            usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..length], self.range.start)?;
        self.range.start += read as u64;
        Ok(read)
    }
}
