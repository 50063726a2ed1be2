//! Names of addresses in ELF files.

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use profile::frame::{Frame, FrameKind};

use super::beneath;
use super::debug_files::DebugFiles;
use super::module::{Module, ModuleId};
use super::sections::Sections;
use super::steady::Steady;

/// Longest name or path taken over from a file, bytes.
const MAX_NAME_BYTES: usize = 4096;
/// Sections that make the ELF reader open files by names that it finds in them.
const LINKS: [&str; 3] = [".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup"];

/// Names addresses of modules and remembers them.
pub(super) struct ElfNames {
    symbolizer: Symbolizer,
    inline: bool,
    debug_files: DebugFiles,
    steady: Steady,
    readable: HashMap<ModuleId, Vec<Readable>>,
    named: HashMap<(ModuleId, u64), Vec<Frame>>,
    unnamed: u64,
}

/// A file to take names from. It is our own descriptor: the reader knows files by descriptor number.
struct Readable {
    _file: File,
    path: PathBuf,
    debug_information: bool,
}

impl ElfNames {
    /// With `inline`, functions that the compiler inlined become frames of their own.
    pub(super) fn new(inline: bool) -> Self {
        Self::with_debug_root(inline, Path::new("/"))
    }

    /// As [`ElfNames::new`], with debug files of our own in `root` instead of `/`.
    pub(super) fn with_debug_root(inline: bool, root: &Path) -> Self {
        Self {
            symbolizer: symbolizer(inline),
            inline,
            debug_files: DebugFiles::new(root),
            steady: Steady::default(),
            readable: HashMap::new(),
            named: HashMap::new(),
            unnamed: 0,
        }
    }

    /// The functions at `address`: the outermost first, then those inlined into it. Never empty.
    pub(super) fn names(&mut self, id: ModuleId, module: &Module, address: u64) -> Vec<Frame> {
        if let Some(frames) = self.named.get(&(id, address)) {
            return frames.clone();
        }
        let frames = self.look_up(id, module, address).unwrap_or_else(|| {
            self.unnamed += 1;
            vec![unknown(module, address)]
        });
        self.named.insert((id, address), frames.clone());
        frames
    }

    /// Distinct addresses that nothing gave a name.
    pub(super) fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Files not read, because others can change them and they are too large to copy.
    pub(super) fn too_large(&self) -> u64 {
        self.steady.refused()
    }

    fn look_up(&mut self, id: ModuleId, module: &Module, address: u64) -> Option<Vec<Frame>> {
        // No user code is there, and the reader's sums overflow.
        if i64::try_from(address).is_err() {
            return None;
        }
        let readable = self
            .readable
            .entry(id)
            .or_insert_with(|| readable_files(&mut self.debug_files, &mut self.steady, module));
        let symbolizer = &self.symbolizer;
        let looked = catch_unwind(AssertUnwindSafe(|| {
            readable
                .iter()
                .find_map(|file| file.name(symbolizer, module, address))
        }));
        looked.unwrap_or_else(|_| {
            // The file is malformed in a way that its reader did not expect, and left it in an unknown state.
            self.symbolizer = self::symbolizer(self.inline);
            self.readable.insert(id, Vec::new());
            None
        })
    }
}

impl Readable {
    fn new(file: File, debug_information: bool) -> Self {
        Self {
            path: beneath::path_of(&file),
            _file: file,
            debug_information,
        }
    }

    fn name(&self, symbolizer: &Symbolizer, module: &Module, address: u64) -> Option<Vec<Frame>> {
        let symbolize = |debug_syms| {
            let mut elf = Elf::new(&self.path);
            elf.debug_syms = debug_syms;
            symbolizer.symbolize_single(&Source::Elf(elf), Input::VirtOffset(address))
        };
        let mut symbolized = symbolize(self.debug_information);
        if symbolized.is_err() && self.debug_information {
            symbolized = symbolize(false);
        }
        match symbolized {
            Ok(Symbolized::Sym(symbol)) => Some(frames(&symbol, module, address)),
            Ok(Symbolized::Unknown(_)) | Err(_) => None,
        }
    }
}

fn symbolizer(inline: bool) -> Symbolizer {
    Symbolizer::builder()
        // Descriptors stay open: what they refer to never changes.
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(inline)
        .enable_demangling(true)
        .build()
}

fn readable_files(
    debug_files: &mut DebugFiles,
    steady: &mut Steady,
    module: &Module,
) -> Vec<Readable> {
    let mut readable = Vec::new();
    let Some(Ok(binary)) = module.file.as_ref().map(File::try_clone) else {
        return readable;
    };
    let debug = debug_files
        .find(module)
        .map(|debug| (debug.file, debug.trusted));
    for (file, trusted) in debug.into_iter().chain([(binary, false)]) {
        if let Some(file) = steady.file(file) {
            let use_debug = may_use_debug(&file, trusted);
            readable.push(Readable::new(file, use_debug));
        }
    }
    readable
}

/// Debug information of a file that names other files is read only when we trust those names.
fn may_use_debug(file: &File, trusted: bool) -> bool {
    Sections::read(file).is_some_and(|sections| {
        let links = LINKS.iter().any(|name| sections.has(name));
        (trusted || !links) && !sections.unpacks_too_large()
    })
}

fn frames(symbol: &Sym<'_>, module: &Module, address: u64) -> Vec<Frame> {
    let frame = |name: &str, inlined, code: Option<&CodeInfo<'_>>| Frame {
        name: bounded(name).into(),
        kind: FrameKind::User,
        inlined,
        module: Some(Arc::clone(&module.path)),
        address,
        line: code.and_then(line),
    };
    let mut frames = vec![frame(&symbol.name, false, symbol.code_info.as_deref())];
    for function in &symbol.inlined {
        // Aliases of one function are no calls.
        if function.name == symbol.name {
            continue;
        }
        frames.push(frame(&function.name, true, function.code_info.as_ref()));
    }
    frames
}

fn line(code: &CodeInfo<'_>) -> Option<(Arc<str>, u32)> {
    let path = code.to_path();
    Some((bounded(&path.to_string_lossy()).into(), code.line?))
}

fn bounded(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn unknown(module: &Module, address: u64) -> Frame {
    let name = module.path.rsplit('/').next().unwrap_or(&module.path);
    Frame {
        name: format!("{name}+{address:#x}").into(),
        kind: FrameKind::User,
        inlined: false,
        module: Some(Arc::clone(&module.path)),
        address,
        line: None,
    }
}
