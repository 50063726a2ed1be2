//! Names in the vDSO: the same image in every 64-bit process, ours included.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

use super::module::Module;

/// The image is a page or two; what lies behind it is not read.
const MAX_BYTES: usize = 16 * 4096;

/// Our own vDSO as a module, its image in memory.
pub(super) fn module() -> Option<Module> {
    let image = image()?;
    // SAFETY: a C string and no other pointers.
    let fd = unsafe { libc::memfd_create(c"vdso".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a new descriptor that nobody else owns.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(&image).ok()?;
    Some(Module {
        path: "[vdso]".into(),
        file: Some(file),
        build_id: Vec::new(),
        root: None,
    })
}

fn image() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let bytes = usize::from_str_radix(end, 16)
        .ok()?
        .checked_sub(start)?
        .min(MAX_BYTES);
    // SAFETY: the kernel keeps this range mapped and readable as long as the process lives.
    Some(unsafe { std::slice::from_raw_parts(start as *const u8, bytes) }.to_vec())
}
