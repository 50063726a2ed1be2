//! Separate debug files: by build ID, else by `.gnu_debuglink`, in the process's own root first.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::{Object, ReadCache};

use super::module::Module;

/// Where distributions put debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";
/// Larger debug files are not checksummed: their link stays unfollowed.
const MAX_CHECKED: u64 = 4 << 30;

/// A debug file, open.
pub(super) struct DebugFile(File);

impl DebugFile {
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The debug file of a module, if it has one that really belongs to it.
pub(super) fn find(module: &Module, file: &File) -> Option<DebugFile> {
    let ours = File::open("/").ok();
    let roots: Vec<&File> = module.root.iter().chain(&ours).collect();
    by_build_id(&roots, &module.build_id)
        .or_else(|| by_link(&roots, module, file))
        .map(DebugFile)
}

fn by_build_id(roots: &[&File], build_id: &[u8]) -> Option<File> {
    let (first, rest) = build_id.split_first()?;
    let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("{DEBUG_ROOT}/.build-id/{first:02x}/{hex}.debug");
    roots.iter().find_map(|root| {
        let file = open_in(root, Path::new(&path))?;
        (read_build_id(&file).as_deref() == Some(build_id)).then_some(file)
    })
}

fn by_link(roots: &[&File], module: &Module, file: &File) -> Option<File> {
    let (name, checksum) = debug_link(file)?;
    let directory = Path::new(&*module.path).parent()?;
    let name = Path::new(OsStr::from_bytes(&name)).file_name()?.to_owned();
    let below_debug_root =
        Path::new(DEBUG_ROOT).join(directory.strip_prefix("/").unwrap_or(directory));
    let candidates: [PathBuf; 3] = [
        directory.join(&name),
        directory.join(".debug").join(&name),
        below_debug_root.join(&name),
    ];
    roots.iter().find_map(|root| {
        candidates.iter().find_map(|path| {
            let candidate = open_in(root, path)?;
            (checksum_of(&candidate)? == checksum).then_some(candidate)
        })
    })
}

/// Opens a regular file below a root; symlinks, absolute ones too, stay inside.
fn open_in(root: &File, path: &Path) -> Option<File> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero is a valid open_how.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    how.flags = u64::try_from(flags).expect("open flags are positive");
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: `path` is a C string, `how` is as large as said.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a new descriptor that nobody else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.metadata().ok()?.is_file().then_some(file)
}

fn read_build_id(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    object.build_id().ok()?.map(<[u8]>::to_vec)
}

fn debug_link(file: &File) -> Option<(Vec<u8>, u32)> {
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    let (name, checksum) = object.gnu_debuglink().ok()??;
    Some((name.to_vec(), checksum))
}

fn checksum_of(file: &File) -> Option<u32> {
    let mut file = file.try_clone().ok()?;
    if file.metadata().ok()?.len() > MAX_CHECKED {
        return None;
    }
    let mut crc = flate2::Crc::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let bytes = file.read(&mut block).ok()?;
        if bytes == 0 {
            return Some(crc.sum());
        }
        crc.update(&block[..bytes]);
    }
}
