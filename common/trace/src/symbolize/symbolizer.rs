//! All that names addresses, behind one door.

use std::collections::HashSet;
use std::sync::Arc;

use profile::frame::{Frame, FrameKind};

use super::elf::ElfNames;
use super::kernel::{KernelNames, Origin};
use super::modules::Modules;
use super::perf_map::PerfMaps;
use super::vdso::{self, VDSO};
use crate::mappings::Mappings;

use super::module::{Location, Module};

/// How much to tell.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Show functions that the compiler inlined as frames of their own.
    pub inline: bool,
}

/// What could not be named. Counts are of distinct addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolLosses {
    /// In programs and libraries: no symbol covers them.
    pub user_unnamed: u64,
    /// Programs and libraries not read, because others can change them and they are too large to copy.
    pub files_too_large: u64,
    /// In memory that no perf map names.
    pub anonymous_unnamed: u64,
    /// In nothing known to have been mapped.
    pub unmapped: u64,
    /// In the kernel.
    pub kernel_unnamed: u64,
    /// Why the kernel has no names at all, if so.
    pub kernel_reason: Option<String>,
    /// Perf maps that were there and could not be trusted.
    pub perf_maps_refused: u64,
}

/// Turns addresses into frames: first [`Symbolizer::locate`] while the process may still live, names whenever wanted.
pub struct Symbolizer {
    mappings: Mappings,
    modules: Modules,
    elf: ElfNames,
    perf_maps: PerfMaps,
    kernel: KernelNames,
    vdso: Module,
    anonymous_unnamed: HashSet<(u32, u64)>,
    unmapped: HashSet<u64>,
}

impl Symbolizer {
    /// Opens nothing of other processes yet.
    pub fn new(options: Options) -> Self {
        Self {
            mappings: Mappings::new(),
            modules: Modules::new(),
            elf: ElfNames::new(options.inline),
            perf_maps: PerfMaps::default(),
            kernel: KernelNames::new(),
            vdso: vdso::module(),
            anonymous_unnamed: HashSet::new(),
            unmapped: HashSet::new(),
        }
    }

    /// Takes in the mappings that processes have now.
    pub fn snapshot(&mut self, processes: impl IntoIterator<Item = u32>) {
        self.mappings.snapshot(processes);
    }

    /// Takes in what was mapped since.
    pub fn poll(&mut self) {
        self.mappings.poll();
    }

    /// Where the addresses of a user stack, leaf first, lay at `time_ns`; opens the files that they lie in.
    pub fn locate(&mut self, tgid: u32, time_ns: u64, ips: &[u64]) -> Arc<[Location]> {
        let locations = self.modules.locate(&mut self.mappings, tgid, time_ns, ips);
        for location in &*locations {
            if let Location::Anonymous { tgid, .. } = location {
                self.perf_maps.open(*tgid);
            }
        }
        locations
    }

    /// A located user stack, leaf first, as frames root → leaf.
    pub fn user(&mut self, locations: &[Location]) -> Arc<[Frame]> {
        let mut frames = Vec::with_capacity(locations.len());
        for location in locations.iter().rev() {
            match *location {
                Location::Module {
                    module: id,
                    address,
                } => {
                    let module = self.modules.get(id);
                    frames.extend(self.elf.names(id, module, address));
                }
                Location::Vdso { offset } => {
                    frames.extend(self.elf.names(VDSO, &self.vdso, offset));
                }
                Location::Anonymous { tgid, address } => frames.push(self.jit(tgid, address)),
                Location::Unmapped { address } => {
                    self.unmapped.insert(address);
                    frames.push(unknown("unmapped", FrameKind::User, address));
                }
            }
        }
        frames.into()
    }

    /// A kernel stack, leaf first, as frames root → leaf without the tracer's own.
    pub fn kernel(&mut self, ips: &[u64], origin: Origin) -> Arc<[Frame]> {
        self.kernel.names(ips, origin)
    }

    /// What could not be named so far.
    pub fn losses(&self) -> SymbolLosses {
        SymbolLosses {
            user_unnamed: self.elf.unnamed(),
            files_too_large: self.elf.too_large(),
            anonymous_unnamed: self.anonymous_unnamed.len() as u64,
            unmapped: self.unmapped.len() as u64,
            kernel_unnamed: self.kernel.unnamed(),
            kernel_reason: self.kernel.reason().map(str::to_owned),
            perf_maps_refused: self.perf_maps.refused(),
        }
    }

    fn jit(&mut self, tgid: u32, address: u64) -> Frame {
        let Some(name) = self.perf_maps.name(tgid, address) else {
            self.anonymous_unnamed.insert((tgid, address));
            return unknown("anon", FrameKind::Jit, address);
        };
        Frame {
            name,
            ..unknown("", FrameKind::Jit, address)
        }
    }
}

fn unknown(memory: &str, kind: FrameKind, address: u64) -> Frame {
    Frame {
        name: format!("[{memory}]+{address:#x}").into(),
        kind,
        inlined: false,
        module: None,
        address,
        line: None,
    }
}
