//! Frames by their text: the same lines come again and again.

use super::frame_line::StackLine;
use crate::frame::FrameKind;
use crate::recording::{FrameKey, Map, NameId, Recording};

/// Half of the addresses is the kernel's.
const UPPER_HALF: u64 = 1 << 63;

/// A module as printed, and what it says about frames.
#[derive(Clone, Copy)]
struct Module {
    name: NameId,
    /// Of frames in the lower half of addresses, and in the upper one.
    kinds: [FrameKind; 2],
}

/// All lines that were there before.
pub(super) struct Frames {
    /// Symbol and module as printed, and what is kept of the address.
    known: Map<(NameId, NameId, u64), u32>,
    modules: Map<NameId, Module>,
    /// Each with its index in [`Recording::frames`], once an event that counts has it.
    all: Vec<(FrameKey, Option<u32>)>,
    /// Functions by the frame that they were inlined into.
    inlined: Map<[u32; 2], u32>,
    /// Bits of addresses that make a difference.
    address_mask: u64,
}

impl Frames {
    pub(super) fn new(names_only: bool) -> Self {
        Self {
            known: Map::default(),
            modules: Map::default(),
            all: Vec::new(),
            inlined: Map::default(),
            address_mask: if names_only { UPPER_HALF } else { u64::MAX },
        }
    }

    /// The number of a line's frame, for [`Self::finish`].
    pub(super) fn id(&mut self, line: &StackLine<'_>, recording: &mut Recording) -> u32 {
        let module = self.module(line.module, recording);
        let address = line.address & self.address_mask;
        let symbol = String::from_utf8_lossy(line.symbol);
        let known = (recording.names.id(&symbol), module.name, address);
        *self.known.entry(known).or_insert_with(|| {
            let key = frame(recording, &symbol, module, line.address, address);
            self.all.push((key, None));
            self.all.len() as u32 - 1
        })
    }

    /// The module of a line.
    fn module(&mut self, printed: &[u8], recording: &mut Recording) -> Module {
        let text = String::from_utf8_lossy(printed);
        let name = recording.names.id(&text);
        let made = || Module {
            name,
            kinds: [0, UPPER_HALF].map(|address| kind(&text, address)),
        };
        *self.modules.entry(name).or_insert_with(made)
    }

    /// From numbers of a stack's frames to indices in [`Recording::frames`].
    pub(super) fn finish(&mut self, leaf_first: &mut [u32], recording: &mut Recording) {
        let Self { all, inlined, .. } = self;
        // Functions that others were inlined into are printed behind them, and have the module.
        for index in (1..leaf_first.len()).rev() {
            let [inner, outer] = [leaf_first[index - 1], leaf_first[index]];
            let [from, into] = [inner, outer].map(|frame| all[frame as usize].0);
            if from.inlined {
                leaf_first[index - 1] = *inlined.entry([inner, outer]).or_insert_with(|| {
                    let (kind, module) = (into.kind, into.module);
                    let frame = FrameKey {
                        kind,
                        module,
                        ..from
                    };
                    all.push((frame, None));
                    all.len() as u32 - 1
                });
            }
        }
        for frame in leaf_first {
            let (key, id) = &mut all[*frame as usize];
            *frame = *id.get_or_insert_with(|| recording.frame_id(key));
        }
    }
}

/// `address`: what is kept of it.
fn frame(
    recording: &mut Recording,
    symbol: &str,
    module: Module,
    printed: u64,
    address: u64,
) -> FrameKey {
    let names = &mut recording.names;
    let text = names.text(module.name);
    let inlined = text == "inlined";
    // perf prints the frame that it was inlined into next, with the module.
    let known = !inlined && !matches!(text, "" | "[unknown]");
    let name = if symbol == "[unknown]" && known {
        let base = text.rsplit('/').next().unwrap_or_default();
        let name = format!("[{}]", base.trim_matches(['[', ']']));
        names.id(&name)
    } else {
        names.id(symbol)
    };
    FrameKey {
        module: if known { module.name } else { NameId::NONE },
        address: if inlined || address != printed {
            0
        } else {
            address
        },
        kind: module.kinds[usize::from(printed & UPPER_HALF != 0)],
        inlined,
        ..FrameKey::named(name)
    }
}

fn kind(module: &str, address: u64) -> FrameKind {
    // What was inlined has the next frame's.
    let module = if module == "inlined" { "" } else { module };
    let base = module.rsplit('/').next().unwrap_or_default();
    let is_upper_half = address & UPPER_HALF != 0;
    match module {
        "[vdso]" | "[vsyscall]" | "[heap]" | "[stack]" => FrameKind::User,
        "//anon" | "[anon]" | "anon" => FrameKind::Jit,
        _ if module.starts_with("[kernel") || module.starts_with("[guest.kernel") => {
            FrameKind::Kernel
        }
        // With its version, and without: vmlinux-6.1.0-13-amd64.
        _ if base.starts_with("vmlinux") || module.contains(".ko") => FrameKind::Kernel,
        _ if is_upper_half && !module.starts_with('/') => FrameKind::Kernel,
        _ if module.contains("/perf-") && module.ends_with(".map") => FrameKind::Jit,
        _ if base.starts_with("jitted-") && base.ends_with(".so") => FrameKind::Jit,
        _ if module.starts_with("[JIT]") => FrameKind::Jit,
        _ => FrameKind::User,
    }
}
