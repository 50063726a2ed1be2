//! Names a batch of addresses of one file.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use elf::Headers;
use elf::go::{GoFile, Table};

use crate::debugfile::{self, DebugFile};
use crate::elfnames::{Functions, Named};
use crate::frames;
use crate::modules::Modules;
use crate::reader::Reader;

/// What compressed sections may claim to unpack to.
const MAX_INFLATED: u64 = 4 << 30;
/// Held in function tables of Go programs; kube-state-metrics, with 70,000 functions, takes 0.6 MiB.
const MAX_GO_BYTES: usize = 64 << 20;

/// Time that reading headers of others' files and searching them (for debug files by checksum, for Go's tables) may take in a
/// run.
const MAX_SEARCHING: Duration = Duration::from_secs(20);

/// What is known about a file once a name was asked of it.
struct Source {
    headers: Headers,
    debug: Option<DebugFile>,
    /// A Go program's own table, read when all others left an address without a name.
    go: OnceCell<Option<Table>>,
    /// Functions known by what they call, the same.
    callers: OnceCell<Callers>,
}

/// Addresses of functions, each with the index of the one that it calls.
type Callers = Vec<(Range<u64>, usize)>;

/// Reads symbols, file by file.
pub(super) struct Resolver {
    reader: Reader,
    sources: HashMap<u32, Source>,
    /// Of every file that names were asked of, also of those whose source was dropped since; some have none.
    pub(super) build_ids: HashMap<u32, Option<Vec<u8>>>,
    debug_dirs: Vec<PathBuf>,
    /// Functions by whose calls those without a name are told.
    callees: Vec<String>,
    /// The reading process holds up to four files of each source open, we one; all are dropped at once.
    max_sources: usize,
    /// Time spent on files that are not root's.
    searching: Duration,
    pub(super) changed: u64,
    /// Files whose headers make no sense, or were not read any more.
    refused: HashSet<u32>,
}

/// An ELF address and, where known, its functions.
pub(super) type Resolved = (u64, Option<Functions>);

impl Resolver {
    pub(super) fn new(inline: bool, debug_dirs: Vec<PathBuf>, max_sources: usize) -> Self {
        Self {
            reader: Reader::new(inline),
            sources: HashMap::new(),
            build_ids: HashMap::new(),
            debug_dirs,
            callees: Vec::new(),
            max_sources,
            searching: Duration::ZERO,
            changed: 0,
            refused: HashSet::new(),
        }
    }

    /// Tells functions without a name by these, which they call.
    pub(super) fn name_callers_of(&mut self, callees: Vec<String>) {
        self.callees = callees;
    }

    /// Does `search` as long as there is time for files of that owner.
    fn searched<T>(
        spent: &mut Duration,
        owner: Option<u32>,
        search: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if owner == Some(0) {
            return search();
        }
        if *spent >= MAX_SEARCHING {
            return None;
        }
        let began = Instant::now();
        let found = search();
        *spent += began.elapsed();
        found
    }

    /// Files whose contents were not used.
    pub(super) fn refused(&self) -> u64 {
        self.refused.len() as u64 + self.reader.refused()
    }

    /// One result per file offset; without headers the offset stands for the address.
    pub(super) fn resolve(
        &mut self,
        modules: &mut Modules,
        id: u32,
        offsets: &[u64],
    ) -> Vec<Resolved> {
        modules.reopen(id);
        if !self.sources.contains_key(&id) && !self.refused.contains(&id) {
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
                    &mut self.reader,
                    (u64::from(id) << 1 | 1, &debug.file),
                    dwarf,
                    &addresses,
                    &debug.headers,
                    &mut found,
                );
            }
            match modules.get(id).unchanged() {
                Some(file) => {
                    let dwarf = source.headers.dwarf
                        && !source.headers.supplementary
                        && is_contained(&source.headers);
                    fill(
                        &mut self.reader,
                        (u64::from(id) << 1, file),
                        dwarf,
                        &addresses,
                        &source.headers,
                        &mut found,
                    );
                    let owner = modules.get(id).owner();
                    let callees = &self.callees;
                    let fill = || {
                        fill_go(source, file, &addresses, &mut found);
                        fill_callers((source, file), callees, &addresses, &mut found);
                        Some(())
                    };
                    Self::searched(&mut self.searching, owner, fill);
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
        let read = || Headers::read(file);
        let Some(headers) = Self::searched(&mut self.searching, module.owner(), read) else {
            self.refused.insert(id);
            return;
        };
        self.build_ids.insert(id, headers.build_id.clone());
        let dirs = &self.debug_dirs;
        let find = || debugfile::find(module, &headers, dirs);
        let debug = (!headers.dwarf)
            .then(|| Self::searched(&mut self.searching, module.owner(), find))
            .flatten();
        let go = self.sources.values().filter_map(|s| s.go.get()?.as_ref());
        let go_bytes: usize = go.map(Table::bytes).sum();
        if self.sources.len() >= self.max_sources || go_bytes > MAX_GO_BYTES {
            self.sources.clear();
            self.reader.reset();
        }
        self.sources.insert(
            id,
            Source {
                headers,
                debug,
                go: OnceCell::new(),
                callers: OnceCell::new(),
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
    reader: &mut Reader,
    (id, file): (u64, &File),
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
    let answers = reader.resolve(id, file, dwarf, &wanted);
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

/// Tells addresses that have no name by what their function calls.
fn fill_callers(
    (source, file): (&Source, &File),
    callees: &[String],
    addresses: &[u64],
    found: &mut [Option<Functions>],
) {
    if callees.is_empty() || found.iter().all(Option::is_some) {
        return;
    }
    let search = || {
        let of = |(at, callee): (usize, &String)| {
            let found = elf::callers(file, &source.headers, callee);
            found.into_iter().map(move |range| (range, at))
        };
        callees.iter().enumerate().flat_map(of).collect()
    };
    let callers = source.callers.get_or_init(search);
    for (address, found) in addresses.iter().zip(found) {
        let caller = callers.iter().find(|(range, _)| range.contains(address));
        if let (None, Some((_, at))) = (&found, caller) {
            let name = frames::caller_of(&callees[*at]);
            *found = Some(Functions {
                named: vec![Named { name, line: None }],
                sizeless: None,
            });
        }
    }
}
