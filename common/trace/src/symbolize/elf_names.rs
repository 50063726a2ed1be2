//! Names of addresses in ELF files: symbol tables, debug files, DWARF, inlined functions.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use profile::frame::{Frame, FrameKind};

use super::debug_files::{self, DebugFile};
use super::module::{Module, ModuleId};

/// Frames of one address: the function itself first, then what was inlined into it, outermost first.
pub(super) type Frames = Arc<[Frame]>;

/// Names, looked up once per address.
pub(super) struct ElfNames {
    symbolizer: Symbolizer,
    sources: HashMap<ModuleId, Option<OpenSource>>,
    names: HashMap<(ModuleId, u64), Frames>,
    unnamed: u64,
}

struct OpenSource {
    source: Source<'static>,
    /// Open as long as the source is used: its path goes through the descriptor.
    _debug: Option<DebugFile>,
}

impl ElfNames {
    pub(super) fn new(inline: bool) -> Self {
        let symbolizer = Symbolizer::builder()
            .enable_code_info(true)
            .enable_inlined_fns(inline)
            .enable_demangling(true)
            .build();
        Self {
            symbolizer,
            sources: HashMap::new(),
            names: HashMap::new(),
            unnamed: 0,
        }
    }

    /// Addresses without a symbol so far.
    pub(super) fn unnamed(&self) -> u64 {
        self.unnamed
    }

    pub(super) fn frames(&mut self, id: ModuleId, module: &Module, address: u64) -> Frames {
        if let Some(frames) = self.names.get(&(id, address)) {
            return Arc::clone(frames);
        }
        let frames = self.look_up(id, module, address).unwrap_or_else(|| {
            self.unnamed += 1;
            vec![unnamed(module, address)]
        });
        let frames: Frames = frames.into();
        self.names.insert((id, address), Arc::clone(&frames));
        frames
    }

    fn look_up(&mut self, id: ModuleId, module: &Module, address: u64) -> Option<Vec<Frame>> {
        let source = self
            .sources
            .entry(id)
            .or_insert_with(|| open_source(module))
            .as_ref()?;
        // One address at a time: an error then spoils no other.
        let symbolized = self
            .symbolizer
            .symbolize_single(&source.source, Input::VirtOffset(address))
            .ok()?;
        match symbolized {
            Symbolized::Sym(symbol) => Some(frames_of(&symbol, module, address)),
            Symbolized::Unknown(_) => None,
        }
    }
}

fn open_source(module: &Module) -> Option<OpenSource> {
    let file = module.file.as_ref()?;
    let debug = debug_files::find(module, file);
    let fd = debug.as_ref().map_or(file.as_raw_fd(), DebugFile::fd);
    let mut elf = Elf::new(PathBuf::from(format!("/proc/self/fd/{fd}")));
    // The debug link has been followed above, from where the module really lies.
    elf.debug_syms = true;
    Some(OpenSource {
        source: Source::Elf(elf),
        _debug: debug,
    })
}

fn frames_of(symbol: &Sym<'_>, module: &Module, address: u64) -> Vec<Frame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, inlined: bool| Frame {
        name: name.into(),
        kind: FrameKind::User,
        inlined,
        module: Some(Arc::clone(&module.path)),
        address,
        line: code.and_then(|code| Some((code.to_path().to_string_lossy().into(), code.line?))),
    };
    let mut frames = vec![frame(&symbol.name, symbol.code_info.as_deref(), false)];
    frames.extend(
        symbol
            .inlined
            .iter()
            .map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), true)),
    );
    frames
}

fn unnamed(module: &Module, address: u64) -> Frame {
    let base = module.path.rsplit('/').next().unwrap_or(&module.path);
    Frame {
        name: format!("{base}+{address:#x}").into(),
        kind: FrameKind::User,
        inlined: false,
        module: Some(Arc::clone(&module.path)),
        address,
        line: None,
    }
}
