//! Other processes' memory.

use std::io;

/// Reads into `buffer` what process `tgid` has at `address`; returns how many bytes there were.
///
/// # Errors
///
/// When the process is gone, may not be read, or has nothing there.
pub fn read(tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    let pid = libc::pid_t::try_from(tgid).map_err(io::Error::other)?;
    // SAFETY: `local` describes `buffer`; the remote address is only ever read by the kernel, which checks it.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
