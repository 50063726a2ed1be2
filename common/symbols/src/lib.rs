//! Addresses → names, also for processes that have exited, containers and deleted files.
//!
//! Two steps: [`Symbolizer::locate`] ties a new stack to the files that were mapped and opens them while they can be
//! reached; [`Symbolizer::user`] and [`Symbolizer::kernel`] name the frames at leisure.

mod began;
mod build_ids;
mod cache;
#[cfg(test)]
#[path = "../../elf/src/damage.rs"]
mod damage;
pub(crate) mod debugfile;
mod elfnames;
pub mod files;
mod frames;
mod identity;
mod interrupt;
mod jit;
mod kallsyms;
mod kernel;
mod location;
mod losses;
pub mod mappings;
pub mod memory;
mod modules;
mod opener;
mod perfmap;
pub mod places;
mod reader;
mod resolve;
mod rust_paths;
mod strip;
mod vdso;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use elf::Headers;
use profile::frame::Frame;

pub use frames::{callee_in, remark};
pub use interrupt::interrupt_part;
pub use kernel::KernelNames;
pub use location::Location;
pub use losses::SymbolLosses;
pub use mappings::own_file_offset;
pub use strip::Origin;

use crate::mappings::{Backing, Mapping, Processes};
use cache::Cache;
use jit::Jits;
use modules::Modules;
use resolve::Resolver;

/// Nothing of the kernel's address space is in a user stack except the vsyscall page.
const LOW_4_GIB: u64 = 1 << 32;

/// Mappings of a process that are looked at whenever one changes: four times what the BPF side lists, because among them
/// may be files without tables.
const MAX_EXECUTABLES: usize = 1 << 14;

/// How to name.
#[derive(Clone, Debug)]
pub struct Options {
    /// Show inlined functions as frames of their own.
    pub inline: bool,
    /// Where separate debug files are, looked up in the target's root first, then in ours.
    pub debug_dirs: Vec<PathBuf>,
    /// Names of kernel code, which others may share.
    pub kernel: KernelNames,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inline: true,
            debug_dirs: vec![debugfile::DEBUG_DIR.into()],
            kernel: KernelNames::default(),
        }
    }
}

/// A file that a process has mapped as code.
#[derive(Clone, Copy, Debug)]
pub struct Executable {
    /// First address of the mapping.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// The file's number, the same in every process.
    pub module: u32,
    /// The file as the kernel names it.
    pub backing: Backing,
}

/// Remembers what was mapped and names addresses. Single-threaded: the ELF library is neither `Send` nor `Sync`.
pub struct Symbolizer {
    processes: Processes,
    modules: Modules,
    jits: Jits,
    vdso: Option<u32>,
    resolver: Resolver,
    kernel: KernelNames,
    cache: Cache,
    frames: u64,
    unnamed: u64,
}

impl Symbolizer {
    /// Opens the stream of mapping changes; a failure to do so is told by [`Symbolizer::losses`].
    pub fn new(options: Options) -> anyhow::Result<Self> {
        // A quarter for modules, an eighth (three files each) for what is being read: a third is left to the caller.
        let files = host::descriptors::allowed();
        let mut modules = Modules::new(files / 4);
        let vdso = vdso::image().ok().map(|file| modules.add("[vdso]", file));
        Ok(Self {
            processes: Processes::new(),
            modules,
            jits: Jits::new(files / 32),
            vdso,
            resolver: Resolver::new(options.inline, options.debug_dirs, files / 8),
            kernel: options.kernel,
            cache: Cache::default(),
            frames: 0,
            unnamed: 0,
        })
    }

    /// Tells functions without a name, in files that are stripped, by these functions, which they call: their names are
    /// `[calls:FUNCTION]`. To be said before anything is named.
    pub fn name_callers_of(&mut self, callees: Vec<String>) {
        self.resolver.name_callers_of(callees);
    }

    /// Remembers what these processes have mapped now.
    pub fn snapshot(&mut self, tgids: impl IntoIterator<Item = u32>) {
        for tgid in tgids {
            self.processes.snapshot(tgid);
        }
    }

    /// Takes in the mapping changes that happened since the last call.
    pub fn poll(&mut self) {
        self.processes.poll();
    }

    /// Processes whose mappings changed since the last call.
    pub fn take_changed(&mut self) -> HashSet<u32> {
        self.processes.take_changed()
    }

    /// The files that a process has mapped as code now; `None` when nothing is known of it.
    pub fn executables(&mut self, tgid: u32) -> Option<Vec<Executable>> {
        let mappings = self.processes.current(tgid, MAX_EXECUTABLES)?;
        let module = |mapping: &Mapping| match mapping.backing {
            Backing::Vdso => self.vdso,
            _ => self.modules.locate(tgid, mapping),
        };
        let files = mappings.iter().map(module).collect::<Vec<_>>();
        let found = mappings.iter().zip(files);
        Some(
            found
                .filter_map(|(mapping, module)| {
                    Some(Executable {
                        start: mapping.start,
                        end: mapping.end,
                        offset: mapping.offset,
                        module: module?,
                        backing: mapping.backing,
                    })
                })
                .collect(),
        )
    }

    /// Paths of the files that a process has mapped as code now, as the kernel prints them; none where nothing is known of it.
    pub fn code_files(&mut self, tgid: u32) -> Vec<String> {
        let mappings = self.processes.current(tgid, MAX_EXECUTABLES);
        let paths = mappings.iter().flatten().map(|mapping| &mapping.path);
        paths
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }

    /// Looks whether a process's program is one of Go's.
    pub fn runs_go(&mut self, tgid: u32) -> bool {
        let executables = self.executables(tgid).unwrap_or_default();
        let program = executables.first().map(|file| file.module);
        let file = program.and_then(|module| self.module_file(module));
        let headers = file.and_then(Headers::read);
        headers.is_some_and(|headers| headers.go.present)
    }

    /// A module's path, as frames show it.
    pub fn module_path(&self, module: u32) -> &str {
        &self.modules.get(module).path
    }

    /// A module's open file, if it is still what was mapped.
    pub fn module_file(&mut self, module: u32) -> Option<&File> {
        self.modules.reopen(module);
        self.modules.get(module).unchanged()
    }

    /// Whether /proc still shows process `tgid` as it was at `time_ns` (CLOCK_MONOTONIC).
    pub(crate) fn lives_on(&self, tgid: u32, time_ns: u64) -> bool {
        self.processes.lives_on(tgid, time_ns)
    }

    /// The mapping of code nearest below an address of a process, gone or not, and its file's number.
    pub(crate) fn code_below(
        &mut self,
        tgid: u32,
        time_ns: u64,
        address: u64,
    ) -> Option<(Mapping, u32)> {
        let mapping = self.processes.code_below(tgid, time_ns, address)?.clone();
        let module = self.modules.locate(tgid, &mapping)?;
        Some((mapping, module))
    }

    /// A module's open file, if it is still what was mapped, and the separate debug file that our root has of it.
    pub(crate) fn with_debug_file(&mut self, module: u32) -> Option<(&File, Option<File>)> {
        self.modules.reopen(module);
        let module = self.modules.get(module);
        let file = module.unchanged()?;
        let debug = debugfile::of_file(file, module.owner()?, module.raw_path());
        Some((file, debug))
    }

    /// Ties a stack (leaf first) to what was mapped in process `tgid` at `time_ns` (CLOCK_MONOTONIC), leaf first.
    ///
    /// Addresses are those of the calls, not those behind them, as the walk by unwind tables gives them.
    /// Call it once per stack and soon after the sample: files are opened here, names are not read.
    pub fn locate(&mut self, tgid: u32, time_ns: u64, ips: &[u64]) -> Arc<[Location]> {
        self.processes.prepare(tgid, time_ns);
        ips.iter()
            .map(|&ip| self.locate_one(tgid, time_ns, ip))
            .collect()
    }

    /// Names located addresses; returns frames root → leaf, inlined functions as frames of their own.
    pub fn user(&mut self, locations: &[Location]) -> Arc<[Frame]> {
        self.name_all(locations);
        let mut frames = Vec::with_capacity(locations.len());
        for location in locations.iter().rev() {
            let (of_location, named) = self.cache.get(location).expect("name_all() named it");
            frames.extend(of_location.iter().cloned());
            self.frames += 1;
            self.unnamed += u64::from(!named);
        }
        frames.into()
    }

    /// Names a kernel stack (leaf first); returns frames root → leaf without the tracer's own.
    pub fn kernel(&mut self, ips: &[u64], origin: Origin) -> Arc<[Frame]> {
        let mut frames = Vec::with_capacity(ips.len());
        let mut named = Vec::with_capacity(ips.len());
        for (depth, &ip) in ips.iter().enumerate() {
            let (frame, is_named) = self.kernel.frame(inside_caller(depth, ip));
            frames.push(frame);
            named.push(is_named);
        }
        let own = strip::own_frames(frames.iter().map(|f| &*f.name), origin);
        let own = own + strip::scheduler_frames(frames[own..].iter().map(|f| &*f.name));
        frames.drain(..own);
        self.frames += frames.len() as u64;
        self.unnamed += named[own..].iter().filter(|n| !**n).count() as u64;
        frames.reverse();
        frames.into()
    }

    /// Hexadecimal build IDs of the files that names were asked of, and the kernel's, by the path that frames show.
    pub fn build_ids(&self) -> BTreeMap<String, String> {
        build_ids::by_path(&self.modules, &self.resolver.build_ids)
    }

    /// What could not be found out so far.
    pub fn losses(&self) -> SymbolLosses {
        let mappings = self.processes.losses();
        SymbolLosses {
            stream: mappings.stream,
            stream_records: mappings.records,
            processes_gone: mappings.gone,
            forgotten: mappings.forgotten,
            modules_unopened: self.modules.unopened,
            files_hung: opener::hangs(),
            modules_changed: self.resolver.changed,
            modules_refused: self.resolver.refused(),
            perf_maps_refused: self.jits.refused,
            perf_maps_disbelieved: self.jits.disbelieved,
            kernel: self.kernel.hidden(),
            frames: self.frames,
            unnamed: self.unnamed,
        }
    }

    fn locate_one(&mut self, tgid: u32, time_ns: u64, address: u64) -> Location {
        if self.processes.find(tgid, time_ns, address).is_none() {
            self.processes.reread(tgid);
        }
        let Some((space, mapping)) = self.processes.find(tgid, time_ns, address) else {
            return Location::Unmapped { address };
        };
        place(&mut self.modules, self.vdso, tgid, mapping, address).unwrap_or_else(|| {
            self.jits.see(space, tgid, time_ns);
            Location::Anonymous { space, address }
        })
    }

    /// Fills the cache for all of `locations`.
    fn name_all(&mut self, locations: &[Location]) {
        self.cache.make_room();
        let mut batches: HashMap<u32, Vec<u64>> = HashMap::new();
        for location in locations {
            if self.cache.get(location).is_some() {
                continue;
            }
            match *location {
                Location::Module { module, offset } => {
                    batches.entry(module).or_default().push(offset)
                }
                Location::Anonymous { space, address } => {
                    let has = |tgid| self.processes.has(tgid, space);
                    let name = self.jits.find(space, address, has);
                    self.cache
                        .insert(*location, frames::anonymous(name, address));
                }
                Location::Unmapped { address } => {
                    self.cache.insert(*location, frames::unmapped(address));
                }
            }
        }
        for (module, mut offsets) in batches {
            offsets.sort_unstable();
            offsets.dedup();
            let resolved = self.resolver.resolve(&mut self.modules, module, &offsets);
            let path = &self.modules.get(module).path;
            for (offset, (address, functions)) in offsets.into_iter().zip(resolved) {
                let frames = frames::of_module(path, address, functions);
                self.cache
                    .insert(Location::Module { module, offset }, frames);
            }
        }
    }
}

/// A return address may lie behind its function's end; the byte before it never does.
fn inside_caller(depth: usize, ip: u64) -> u64 {
    if depth == 0 { ip } else { ip.wrapping_sub(1) }
}

/// The file location of an address, `None` when its mapping has no ELF file.
fn place(
    modules: &mut Modules,
    vdso: Option<u32>,
    tgid: u32,
    mapping: &Mapping,
    address: u64,
) -> Option<Location> {
    let module = match mapping.backing {
        Backing::File(_) => modules.locate(tgid, mapping)?,
        // A 32-bit process has another image than ours.
        Backing::Vdso if mapping.start >= LOW_4_GIB => vdso?,
        Backing::Vdso | Backing::Anonymous => return None,
    };
    Some(Location::Module {
        module,
        offset: mapping.file_offset(address),
    })
}
