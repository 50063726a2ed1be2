//! Names of kernel addresses: kernel, modules, BPF programs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use profile::frame::{Frame, FrameKind};

/// Names, looked up once per address; the table of symbols is read at the first look-up (some 50 ms).
pub(super) struct KernelNames {
    symbolizer: Symbolizer,
    source: Source<'static>,
    names: HashMap<u64, Frame>,
    unnamed: u64,
}

impl KernelNames {
    pub(super) fn new() -> Self {
        // Line numbers of the kernel would need its debug image, which hardly any machine has.
        let symbolizer = Symbolizer::builder()
            .enable_code_info(false)
            .enable_inlined_fns(false)
            .build();
        let source = Source::Kernel(Kernel {
            vmlinux: MaybeDefault::None,
            debug_syms: false,
            ..Kernel::default()
        });
        Self {
            symbolizer,
            source,
            names: HashMap::new(),
            unnamed: 0,
        }
    }

    /// Addresses without a symbol so far.
    pub(super) fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Frames of addresses (leaf first), root → leaf.
    pub(super) fn frames(&mut self, ips: &[u64]) -> Vec<Frame> {
        let at = |(depth, ip): (usize, &u64)| ip.saturating_sub(u64::from(depth > 0));
        let mut frames: Vec<Frame> = ips
            .iter()
            .enumerate()
            .map(at)
            .map(|ip| self.frame(ip))
            .collect();
        frames.reverse();
        frames
    }

    fn frame(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.names.get(&address) {
            return frame.clone();
        }
        let frame = self.look_up(address).unwrap_or_else(|| {
            self.unnamed += 1;
            let name = format!("[kernel]+{address:#x}").into();
            kernel_frame(name, "[kernel]".into(), address)
        });
        self.names.insert(address, frame.clone());
        frame
    }

    fn look_up(&self, address: u64) -> Option<Frame> {
        let symbolized = self
            .symbolizer
            .symbolize_single(&self.source, Input::AbsAddr(address))
            .ok()?;
        let Symbolized::Sym(symbol) = symbolized else {
            return None;
        };
        let module = symbol
            .module
            .as_deref()
            .map_or("[kernel]".into(), |module| {
                let name = Path::new(module).to_string_lossy();
                if name.starts_with('[') {
                    name.into_owned()
                } else {
                    format!("[{name}]")
                }
            });
        Some(kernel_frame(
            symbol.name.as_ref().into(),
            module.into(),
            address,
        ))
    }
}

fn kernel_frame(name: Arc<str>, module: Arc<str>, address: u64) -> Frame {
    Frame {
        name,
        kind: FrameKind::Kernel,
        inlined: false,
        module: Some(module),
        address,
        line: None,
    }
}
