//! All that names addresses, behind one door.

use std::collections::HashSet;
use std::sync::Arc;

use profile::frame::{Frame, FrameKind};

use super::elf::ElfNames;
use super::kernel::KernelNames;
use super::module::{Location, Module};
use super::modules::Modules;
use super::own_frames::Origin;
use super::perf_map::PerfMaps;
use super::vdso::{self, VDSO};
use crate::losses::Losses;
use crate::mappings::Mappings;

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
    astray: u64,
}

impl Symbolizer {
    /// Opens the stream of mapping changes, nothing of other processes yet. `inline`: functions that the compiler inlined
    /// become frames of their own.
    pub fn new(inline: bool) -> Self {
        Self {
            mappings: Mappings::new(),
            modules: Modules::default(),
            elf: ElfNames::new(inline),
            perf_maps: PerfMaps::default(),
            kernel: KernelNames::new(),
            vdso: vdso::module(),
            anonymous_unnamed: HashSet::new(),
            unmapped: HashSet::new(),
            astray: 0,
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
        let mut locations = self.modules.locate(&mut self.mappings, tgid, time_ns, ips);
        // Code that was not mapped was not running: from there on the frame pointers led astray.
        let sound = locations
            .iter()
            .skip(1)
            .take_while(|location| !matches!(location, Location::Unmapped { .. }));
        let sound = 1 + sound.count();
        if sound < locations.len() {
            self.astray += 1;
            locations = locations[..sound].into();
        }
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

    /// What stayed unnamed for want of information that was lost.
    pub fn count_losses(&self, losses: &mut Losses) {
        losses.count(
            "mapping_changes_lost",
            "changes of mappings: stream full",
            self.mappings.changes_lost(),
        );
        losses.count(
            "processes_forgotten",
            "exited processes forgotten",
            self.mappings.forgotten(),
        );
    }

    /// How many distinct addresses are printed as `module+0xoffset`, and why, for `-v`.
    pub fn describe_unnamed(&self) -> String {
        format!(
            "unnamed addresses: {} in files, {} in JIT code, {} unmapped, {} in the kernel{}; {} files not opened, {} too \
             large, {} processes gone before their mappings were read, {} perf maps refused, {} stacks whose frame pointers led astray{}",
            self.elf.unnamed(),
            self.anonymous_unnamed.len(),
            self.unmapped.len(),
            self.kernel.unnamed(),
            self.kernel
                .reason()
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default(),
            self.modules.unopened(),
            self.elf.too_large(),
            self.mappings.unreadable(),
            self.perf_maps.refused(),
            self.astray,
            if self.mappings.has_stream() {
                ""
            } else {
                "; no stream of mapping changes"
            },
        )
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
