//! Separate debug files: found in the process's own root or ours, and shown to belong to the binary.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::beneath::{self, Links};
use super::module::Module;
use super::sections::Sections;
use super::steady::is_roots_own;

/// The largest file whose checksum is worth the time.
const MAX_BYTES: u64 = 4 << 30;
/// All checksums together: files full of holes are easily made and slow to read.
const MAX_TOTAL_BYTES: u64 = 16 << 30;
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// A debug file that matches its binary.
#[derive(Debug)]
pub(super) struct DebugFile {
    /// The file, open for reading.
    pub(super) file: File,
    /// Whether only our own root user can have written it: links in it may be followed.
    pub(super) trusted: bool,
}

/// Looks for debug files.
#[derive(Debug)]
pub(super) struct DebugFiles {
    own_root: Option<File>,
    budget: Budget,
}

/// Bytes that may still be read for checksums.
#[derive(Debug)]
struct Budget(u64);

impl DebugFiles {
    /// Searches `own_root` (`/`) after the root of the process.
    pub(super) fn new(own_root: &Path) -> Self {
        Self {
            own_root: beneath::root(own_root).ok(),
            budget: Budget(MAX_TOTAL_BYTES),
        }
    }

    /// The debug file of a module: by build ID first, then by `.gnu_debuglink`.
    pub(super) fn find(&mut self, module: &Module) -> Option<DebugFile> {
        let link = module
            .file
            .as_ref()
            .and_then(|file| Sections::read(file)?.debug_link());
        let own = self.own_root.as_ref().map(|root| (root, true));
        let roots = module
            .root
            .as_ref()
            .map(|root| (root, false))
            .into_iter()
            .chain(own);
        for (root, ours) in roots {
            let file = by_build_id(root, &module.build_id)
                .or_else(|| by_link(root, module, link.as_ref()?, &mut self.budget));
            if let Some(file) = file {
                let trusted = ours && is_roots_own(&file);
                return Some(DebugFile { file, trusted });
            }
        }
        None
    }
}

fn by_build_id(root: &File, id: &[u8]) -> Option<File> {
    // Shorter ones are not unique, and longer ones are not made by any linker.
    if !(8..=64).contains(&id.len()) {
        return None;
    }
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (directory, name) = hex.split_at(2);
    let path = format!("{DEBUG_ROOT}/.build-id/{directory}/{name}.debug");
    let file = beneath::open(root, Path::new(&path), Links::Follow).ok()?;
    let found = Sections::read(&file)?.build_id()?;
    (found == id).then_some(file)
}

fn by_link(
    root: &File,
    module: &Module,
    (name, checksum): &(Vec<u8>, u32),
    budget: &mut Budget,
) -> Option<File> {
    if name.is_empty() || name.contains(&b'/') || name == b".." {
        return None;
    }
    let name = OsStr::from_bytes(name);
    let directory = Path::new(&*module.path).parent()?;
    let below = directory.strip_prefix("/").unwrap_or(directory);
    let candidates: [PathBuf; 3] = [
        directory.join(name),
        directory.join(".debug").join(name),
        Path::new(DEBUG_ROOT).join(below).join(name),
    ];
    candidates.iter().find_map(|path| {
        let file = beneath::open(root, path, Links::Follow).ok()?;
        (budget.crc32(&file)? == *checksum).then_some(file)
    })
}

impl Budget {
    fn crc32(&mut self, mut file: &File) -> Option<u32> {
        let size = file.metadata().ok()?.len();
        if size > MAX_BYTES.min(self.0) {
            return None;
        }
        self.0 -= size;
        let mut crc = flate2::Crc::new();
        let mut buffer = vec![0; 1 << 16];
        // The file may grow while it is read.
        let mut left = size;
        while left > 0 {
            let read = file.read(&mut buffer).ok()?;
            if read == 0 {
                break;
            }
            crc.update(&buffer[..read]);
            left = left.saturating_sub(read as u64);
        }
        Some(crc.sum())
    }
}
