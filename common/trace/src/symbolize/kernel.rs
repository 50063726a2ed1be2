//! Names of kernel addresses.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use profile::frame::{Frame, FrameKind};

use super::kallsyms::Kallsyms;
use super::own_frames::{self, Origin};

/// Names kernel addresses and remembers them; reads the kernel's symbols at the first one.
#[derive(Debug, Default)]
pub(super) struct KernelNames {
    symbols: Option<Kallsyms>,
    reason: Option<String>,
    named: HashMap<u64, Frame>,
    unnamed: u64,
}

impl KernelNames {
    /// Reads nothing yet: BPF programs loaded until the first address are still found.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A kernel stack, leaf first, as frames root → leaf without the tracer's own.
    pub(super) fn names(&mut self, ips: &[u64], origin: Origin) -> Arc<[Frame]> {
        let mut frames: Vec<Frame> = ips
            .iter()
            .enumerate()
            // A caller's address is the one after its call, which may be the next function's.
            .map(|(depth, ip)| self.name(ip.saturating_sub(u64::from(depth > 0))))
            .collect();
        frames.reverse();
        own_frames::strip(&mut frames, origin);
        frames.into()
    }

    /// Why kernel addresses have no names at all, if so.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Distinct addresses that got no name.
    pub(super) fn unnamed(&self) -> u64 {
        self.unnamed
    }

    fn name(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.named.get(&address) {
            return frame.clone();
        }
        let found = self
            .symbols()
            .find(address)
            .map(|(name, module)| (Arc::from(name), Arc::clone(module)));
        let (name, module) = found.unwrap_or_else(|| {
            self.unnamed += 1;
            (format!("[kernel]+{address:#x}").into(), "[kernel]".into())
        });
        let frame = Frame {
            name,
            kind: FrameKind::Kernel,
            inlined: false,
            module: Some(module),
            address,
            line: None,
        };
        self.named.insert(address, frame.clone());
        frame
    }

    fn symbols(&mut self) -> &Kallsyms {
        let reason = &mut self.reason;
        self.symbols.get_or_insert_with(|| {
            let read = File::open("/proc/kallsyms")
                .and_then(|file| Kallsyms::read(BufReader::with_capacity(1 << 16, file)));
            match read {
                Ok(symbols) => {
                    if symbols.hidden() {
                        let why = "the kernel hides its addresses (kernel.kptr_restrict)";
                        *reason = Some(why.into());
                    }
                    symbols
                }
                Err(error) => {
                    *reason = Some(format!("/proc/kallsyms: {error}"));
                    Kallsyms::default()
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_schedule() {
        let table = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let address = table.lines().find_map(|line| {
            let (address, name) = line.split_once(" T ")?;
            (name == "schedule").then(|| u64::from_str_radix(address, 16).ok())?
        });
        let Some(address) = address.filter(|address| *address != 0) else {
            assert!(
                std::env::var_os("REQUIRE_LIVE").is_none_or(|value| value != "1"),
                "kernel addresses are hidden"
            );
            eprintln!("SKIPPED: kernel addresses are hidden");
            return;
        };
        let mut names = KernelNames::new();
        let started = std::time::Instant::now();
        let frames = names.names(&[address, address + 4, 0x10], Origin::Tracepoint);
        eprintln!("kernel symbols: {:?}", started.elapsed());
        let names_found: Vec<&str> = frames.iter().map(|frame| &*frame.name).collect();
        assert_eq!(names_found, ["[kernel]+0xf", "schedule", "schedule"]);
        assert_eq!(frames[1].module.as_deref(), Some("[kernel]"));
        assert_eq!(names.unnamed(), 1);
        assert_eq!(names.reason(), None);
    }
}
