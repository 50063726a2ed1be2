//! The kernel's vDSO, the same image in every 64-bit process, as a file to read symbols from.

use std::fs::File;
use std::io::{self, Write};

use host::descriptors::memory;

/// Real ones have 4–12 KiB; the ELF header's own tables end before.
const MAX_SIZE: u64 = 256 << 10;

/// A copy of our own vDSO in memory.
pub(super) fn image() -> io::Result<File> {
    // SAFETY: getauxval has no preconditions.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let size = crate::mappings::mapped_size(start)?.min(MAX_SIZE);
    let size = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: /proc/self/maps just said that so many bytes are mapped there, and the vDSO is never unmapped or written.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, size) };
    let mut file = memory(c"vdso")?;
    file.write_all(bytes)?;
    Ok(file)
}
