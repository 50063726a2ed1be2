//! Pinning threads to CPUs.

use std::io;

/// Keeps the calling thread on `cpu`.
///
/// # Errors
/// The kernel's, above all for a CPU that is not there or not allowed.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: an all-zero cpu_set_t is the empty set, and `cpu` is below its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    };
    // SAFETY: `set` is valid for its size; 0 is the calling thread.
    let rc = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// [`pin`]s where a CPU was asked for; a test that asked for a missing one must fail, not drift.
///
/// # Panics
/// When the CPU cannot be had.
pub fn pin_or_die(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        pin(cpu).unwrap_or_else(|error| panic!("cannot pin to CPU {cpu}: {error}"));
    }
}
