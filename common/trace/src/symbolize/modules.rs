//! Files that user code lies in: opened at first sight, while they can be reached.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, elf};

use super::module::{Location, Module, ModuleId};
use crate::mappings::{Kind, Mapping, Mappings};

/// Files kept open; a process may map as many as it likes.
const MAX_OPEN: usize = 4096;

/// Parts of a file that are mapped, to turn file offsets into ELF virtual addresses.
struct Segment {
    file_offset: u64,
    bytes: u64,
    address: u64,
}

/// Every module met, each once.
#[derive(Default)]
pub(super) struct Modules {
    modules: Vec<Module>,
    segments: Vec<Vec<Segment>>,
    by_file: HashMap<(u64, Arc<[u8]>), ModuleId>,
    open: usize,
    unopened: u64,
}

impl Modules {
    /// The module behind an id handed out here.
    pub(super) fn get(&self, id: ModuleId) -> &Module {
        &self.modules[id as usize]
    }

    /// Modules that could not be opened, or were no longer the file that had been mapped.
    pub(super) fn unopened(&self) -> u64 {
        self.unopened
    }

    /// Ties a stack's addresses (leaf first) to what was mapped at `time_ns`.
    ///
    /// All but the leaf are return addresses; they are moved back by one, into the call they return from, so that a
    /// call at the very end of a function is not taken for the function behind it.
    pub(super) fn locate(
        &mut self,
        mappings: &mut Mappings,
        tgid: u32,
        time_ns: u64,
        ips: &[u64],
    ) -> Arc<[Location]> {
        let at = |(depth, ip): (usize, &u64)| ip.saturating_sub(u64::from(depth > 0));
        let addresses = ips.iter().enumerate().map(at);
        addresses
            .map(|address| self.locate_one(mappings, tgid, time_ns, address))
            .collect()
    }

    fn locate_one(
        &mut self,
        mappings: &mut Mappings,
        tgid: u32,
        time_ns: u64,
        address: u64,
    ) -> Location {
        let Some(mapping) = mappings.find(tgid, time_ns, address) else {
            return Location::Unmapped { address };
        };
        match &mapping.kind {
            Kind::Vdso => Location::Vdso {
                offset: address - mapping.start,
            },
            Kind::Anonymous => Location::Anonymous { tgid, address },
            Kind::File { path, inode } => {
                let offset = address - mapping.start + mapping.file_offset;
                let known = self.by_file.get(&(*inode, Arc::clone(path))).copied();
                let module = known.unwrap_or_else(|| self.open(tgid, mapping, path, *inode));
                Location::Module {
                    module,
                    address: self.virtual_address(module, offset),
                }
            }
        }
    }

    fn virtual_address(&self, module: ModuleId, offset: u64) -> u64 {
        let segments = &self.segments[module as usize];
        let inside = segments
            .iter()
            .find(|segment| offset.wrapping_sub(segment.file_offset) < segment.bytes);
        inside.map_or(offset, |segment| {
            segment.address.wrapping_add(offset - segment.file_offset)
        })
    }

    fn open(&mut self, tgid: u32, mapping: &Mapping, path: &Arc<[u8]>, inode: u64) -> ModuleId {
        let file = if self.open < MAX_OPEN {
            open_mapped(tgid, mapping, path, inode)
        } else {
            None
        };
        match file {
            Some(_) => self.open += 1,
            None => self.unopened += 1,
        }
        let (segments, build_id) = file.as_ref().and_then(read_headers).unwrap_or_default();
        let id = ModuleId::try_from(self.modules.len()).expect("fewer than 2^32 modules");
        self.modules.push(Module {
            path: String::from_utf8_lossy(path).into(),
            file,
            build_id,
            root: other_root(tgid),
        });
        self.segments.push(segments);
        self.by_file.insert((inode, Arc::clone(path)), id);
        id
    }
}

/// The very file that is mapped, or none.
fn open_mapped(tgid: u32, mapping: &Mapping, path: &[u8], inode: u64) -> Option<File> {
    let path = Path::new(OsStr::from_bytes(path));
    // The kernel's own link reaches deleted files and other mount namespaces, while the process lives.
    let exact = format!(
        "/proc/{tgid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    if let Some(file) = open_regular(Path::new(&exact)) {
        return Some(file);
    }
    let in_its_root = Path::new("/proc")
        .join(tgid.to_string())
        .join("root")
        .join(path.strip_prefix("/").ok()?);
    [in_its_root.as_path(), path].into_iter().find_map(|path| {
        let file = open_regular(path)?;
        // Overlay and btrfs report another device than the mapping has, so inodes have to do.
        (file.metadata().ok()?.ino() == inode).then_some(file)
    })
}

/// Opens a file, nothing else: a FIFO would block, a device might act.
pub(super) fn open_regular(path: &Path) -> Option<File> {
    // Asked before opening, since opening alone may have effects, and after, since paths may change.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The root of a process in another mount namespace or chroot.
fn other_root(tgid: u32) -> Option<File> {
    let path = format!("/proc/{tgid}/root");
    let (its, ours) = (fs::metadata(&path).ok()?, fs::metadata("/").ok()?);
    if (its.dev(), its.ino()) == (ours.dev(), ours.ino()) {
        return None;
    }
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(path)
        .ok()
}

fn read_headers(file: &File) -> Option<(Vec<Segment>, Vec<u8>)> {
    let cache = ReadCache::new(file);
    headers::<elf::FileHeader64<Endianness>>(&cache)
        .or_else(|| headers::<elf::FileHeader32<Endianness>>(&cache))
}

fn headers<Elf: FileHeader<Endian = Endianness>>(
    data: &ReadCache<&File>,
) -> Option<(Vec<Segment>, Vec<u8>)> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = Vec::new();
    let mut build_id = Vec::new();
    for program in header.program_headers(endian, data).ok()? {
        if program.p_type(endian) == elf::PT_LOAD {
            segments.push(Segment {
                file_offset: program.p_offset(endian).into(),
                bytes: program.p_filesz(endian).into(),
                address: program.p_vaddr(endian).into(),
            });
        } else if let Ok(Some(mut notes)) = program.notes(endian, data) {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                    build_id = note.desc().to_vec();
                }
            }
        }
    }
    Some((segments, build_id))
}
