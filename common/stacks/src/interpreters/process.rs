//! A process as the reader of interpreters sees it: its files that may hold one, and its memory.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use foreign::pages::{self, Kept};
use python::{Binary, Mapping, Memory, Process};
use symbols::{Executable, Symbolizer};

/// Files that are known to hold an interpreter, or none.
const MOST_FILES: usize = 4096;

/// Facts that files say of the interpreters in them, by module.
#[derive(Default)]
pub(super) struct Binaries(HashMap<u32, Option<Arc<Binary>>>);

impl Binaries {
    fn of(&mut self, module: u32, symbolizer: &mut Symbolizer) -> Option<Arc<Binary>> {
        if self.0.len() >= MOST_FILES {
            self.0.clear();
        }
        let read = || {
            let file = symbolizer.module_file(module)?;
            Binary::read(file).map(Arc::new)
        };
        self.0.entry(module).or_insert_with(read).clone()
    }
}

/// Tells if a file may hold an interpreter: its name says so, and it is no module for one; or it is a program.
pub(super) fn may_hold(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_library = name.ends_with(".so") || name.contains(".so.");
    let is_called_so = name.starts_with("python") || name.starts_with("libpython");
    is_called_so || !(is_library || name.starts_with('['))
}

/// Memory of a process.
pub(super) struct Pages(pub(super) u32);

impl Memory for Pages {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        pages::read(self.0, address, buffer)
    }
}

/// Memory of a process with a thread that does not run.
pub(super) struct KeptPages<'a>(pub(super) u32, pub(super) &'a Kept);

impl Memory for KeptPages<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.1.read(self.0, address, buffer)
    }
}

/// A process that may run Python.
pub(super) struct Traced {
    memory: Pages,
    files: Vec<(Mapping, Arc<Binary>)>,
}

impl Traced {
    /// `None`: no file of these holds an interpreter.
    pub(super) fn new(
        tgid: u32,
        executables: &[Executable],
        binaries: &mut Binaries,
        symbolizer: &mut Symbolizer,
    ) -> Option<Self> {
        let mut files = Vec::new();
        for file in executables {
            let path = symbolizer.module_path(file.module);
            if !may_hold(path) {
                continue;
            }
            let path = PathBuf::from(path);
            if let Some(binary) = binaries.of(file.module, symbolizer) {
                let mapping = Mapping {
                    path,
                    range: file.start..file.end,
                    offset: file.offset,
                };
                files.push((mapping, binary));
            }
        }
        let memory = Pages(tgid);
        (!files.is_empty()).then_some(Self { memory, files })
    }
}

impl Memory for Traced {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.memory.read(address, buffer)
    }
}

impl Process for Traced {
    fn mappings(&self) -> Vec<Mapping> {
        self.files
            .iter()
            .map(|(mapping, _)| mapping.clone())
            .collect()
    }

    fn binary(&self, mapping: &Mapping) -> Option<Arc<Binary>> {
        let mut files = self.files.iter();
        let found = files.find(|(file, _)| file.range == mapping.range);
        found.map(|(_, binary)| Arc::clone(binary))
    }
}
