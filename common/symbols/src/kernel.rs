//! Kernel addresses → frames.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profile::frame::{Frame, FrameKind};

use crate::kallsyms::Kallsyms;

/// Reading all symbols again takes 50 ms; BPF programs and modules come and go slowly.
const RELOAD: Duration = Duration::from_secs(1);
const MAX_CACHED: usize = 1 << 18;

/// Names of kernel code, read when the first one is asked for; a clone shares them, for they take some 5 MiB.
#[derive(Clone, Debug, Default)]
pub struct KernelNames(Rc<RefCell<Kernel>>);

impl KernelNames {
    /// The frame at an address inside a function, and whether it has a name.
    pub(super) fn frame(&self, address: u64) -> (Frame, bool) {
        self.0.borrow_mut().frame(address)
    }

    /// Reason that there are none.
    pub(super) fn hidden(&self) -> Option<String> {
        self.0.borrow().hidden.clone()
    }
}

#[derive(Debug, Default)]
struct Kernel {
    symbols: Option<(Kallsyms, Instant)>,
    cache: HashMap<u64, (Frame, bool)>,
    hidden: Option<String>,
}

impl Kernel {
    fn frame(&mut self, address: u64) -> (Frame, bool) {
        if let Some(known) = self.cache.get(&address) {
            return known.clone();
        }
        let frame = self.resolve(address);
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert(address, frame.clone());
        frame
    }

    fn resolve(&mut self, address: u64) -> (Frame, bool) {
        let symbols = self.symbols();
        // What was loaded since may lie behind an older program in the same region.
        let doubtful = symbols
            .find(address)
            .is_none_or(|(_, module)| **module == *"[bpf]");
        if doubtful && self.is_stale() {
            self.symbols = None;
        }
        let found = self.symbols().find(address);
        let named = found.is_some();
        let (name, module) = match found {
            Some((name, module)) => (name.into(), Arc::clone(module)),
            None => (format!("[kernel]+{address:#x}").into(), "[kernel]".into()),
        };
        let frame = Frame {
            name,
            kind: FrameKind::Kernel,
            inlined: false,
            module: Some(module),
            address,
            line: None,
        };
        (frame, named)
    }

    fn is_stale(&self) -> bool {
        self.symbols
            .as_ref()
            .is_some_and(|(s, at)| !s.is_empty() && at.elapsed() > RELOAD)
    }

    fn symbols(&mut self) -> &Kallsyms {
        let hidden = &mut self.hidden;
        let (symbols, _) = self
            .symbols
            .get_or_insert_with(|| (load(hidden), Instant::now()));
        symbols
    }
}

fn load(hidden: &mut Option<String>) -> Kallsyms {
    let reason = match Kallsyms::load() {
        Ok(symbols) if !symbols.is_empty() => return symbols,
        Ok(_) => {
            "/proc/kallsyms shows no addresses (kernel.kptr_restrict, or CAP_SYSLOG is missing)"
                .to_owned()
        }
        Err(error) => format!("/proc/kallsyms: {error}"),
    };
    *hidden = Some(reason);
    Kallsyms::default()
}
