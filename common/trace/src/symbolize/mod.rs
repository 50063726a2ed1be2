//! Addresses → names, also for processes that have exited, other mount namespaces and deleted files.
//!
//! Two steps: [`Symbolizer::locate`] ties a user address to its file when the stack is first seen, while the process can
//! still be asked; [`Symbolizer::user`] names it when a report needs it.

mod debug_files;
mod elf_names;
mod kernel_names;
mod module;
mod modules;
mod own_frames;
mod perf_maps;
mod vdso;

use std::sync::Arc;

use profile::frame::{Frame, FrameKind};

pub use module::{Location, Module, ModuleId};
pub use own_frames::{Origin, interrupt_part};

use crate::losses::Losses;
use crate::mappings::Mappings;
use elf_names::ElfNames;
use kernel_names::KernelNames;
use modules::Modules;
use perf_maps::PerfMaps;

/// Stands for the vDSO where modules are numbered.
const VDSO: ModuleId = ModuleId::MAX;

/// Everything that turns addresses into names.
pub struct Symbolizer {
    mappings: Mappings,
    modules: Modules,
    elf: ElfNames,
    perf_maps: PerfMaps,
    kernel: KernelNames,
    vdso: Option<Module>,
    unmapped: u64,
}

impl Symbolizer {
    /// `inline`: functions that the compiler inlined become frames of their own.
    pub fn new(inline: bool) -> Self {
        Self {
            mappings: Mappings::new(),
            modules: Modules::default(),
            elf: ElfNames::new(inline),
            perf_maps: PerfMaps::default(),
            kernel: KernelNames::new(),
            vdso: vdso::module(),
            unmapped: 0,
        }
    }

    /// Remembers what these processes have mapped now.
    pub fn snapshot(&mut self, tgids: impl IntoIterator<Item = u32>) {
        self.mappings.snapshot(tgids);
    }

    /// Takes in what processes have mapped since; to be called some 20 times a second.
    pub fn poll(&mut self) {
        self.mappings.poll();
    }

    /// Ties the addresses of a user stack (leaf first) to files, which are opened now if they are new.
    pub fn locate(&mut self, tgid: u32, time_ns: u64, ips: &[u64]) -> Arc<[Location]> {
        let locations = self.modules.locate(&mut self.mappings, tgid, time_ns, ips);
        if locations
            .iter()
            .any(|location| matches!(location, Location::Anonymous { .. }))
        {
            self.perf_maps.open(tgid);
        }
        locations
    }

    /// Names of a user stack's addresses, root → leaf; inlined functions are frames of their own.
    pub fn user(&mut self, locations: &[Location]) -> Arc<[Frame]> {
        locations
            .iter()
            .rev()
            .flat_map(|location| self.user_frames(*location))
            .collect()
    }

    fn user_frames(&mut self, location: Location) -> Vec<Frame> {
        match location {
            Location::Module { module, address } => self
                .elf
                .frames(module, self.modules.get(module), address)
                .to_vec(),
            Location::Vdso { offset } => match &self.vdso {
                Some(vdso) => self.elf.frames(VDSO, vdso, offset).to_vec(),
                None => vec![unnamed("[vdso]", offset)],
            },
            Location::Anonymous { tgid, address } => match self.perf_maps.name(tgid, address) {
                Some(name) => vec![Frame {
                    name,
                    kind: FrameKind::Jit,
                    ..unnamed("[anon]", address)
                }],
                None => vec![Frame {
                    kind: FrameKind::Jit,
                    ..unnamed("[anon]", address)
                }],
            },
            Location::Unmapped { address } => {
                self.unmapped += 1;
                vec![Frame {
                    module: None,
                    ..unnamed("[unmapped]", address)
                }]
            }
        }
    }

    /// Names of a kernel stack's addresses (leaf first), root → leaf, without the tracer's own frames.
    pub fn kernel(&mut self, ips: &[u64], origin: Origin) -> Arc<[Frame]> {
        let mut frames = self.kernel.frames(ips);
        own_frames::strip(&mut frames, origin);
        frames.into()
    }

    /// What could not be named, and why.
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

    /// Frames that had to be printed as `module+0xoffset`, and why, for `-v`.
    pub fn describe_unnamed(&self) -> String {
        format!(
            "unnamed addresses: {} in files, {} in the kernel, {} unmapped; {} files not opened, {} processes gone \
             before their mappings were read, {} perf maps refused{}",
            self.elf.unnamed(),
            self.kernel.unnamed(),
            self.unmapped,
            self.modules.unopened(),
            self.mappings.unreadable(),
            self.perf_maps.refused(),
            if self.mappings.has_stream() {
                ""
            } else {
                "; no stream of mapping changes"
            },
        )
    }
}

fn unnamed(module: &str, address: u64) -> Frame {
    Frame {
        name: format!("{module}+{address:#x}").into(),
        kind: FrameKind::User,
        inlined: false,
        module: Some(module.into()),
        address,
        line: None,
    }
}
