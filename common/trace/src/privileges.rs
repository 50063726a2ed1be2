//! Gives up what a tool does not need any more, once it is attached.
//!
//! A tool begins with all of root's capabilities and reads other people's files for minutes. What it keeps is listed here
//! with the reason; whatever it did not have it does not get.

use std::io;

/// A capability by its number in `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// Write where a user's `-o FILE` points, though the directory be somebody else's.
    DacOverride = 1,
    /// Open the files that other users' processes have mapped.
    DacReadSearch = 2,
    /// Replace somebody else's file in a sticky directory.
    Fowner = 3,
    /// Forward a signal to a command that has changed its user.
    Kill = 5,
    /// Shut the process that reads foreign files in.
    SysChroot = 18,
    /// Read other processes' `maps`, `root` and stacks.
    SysPtrace = 19,
    /// Before Linux 5.9: everything that the last three are for.
    SysAdmin = 21,
    /// PSI triggers with windows below 2 s.
    SysResource = 24,
    /// See addresses in `/proc/kallsyms`.
    Syslog = 34,
    /// Open perf events.
    Perfmon = 38,
    /// Read and write the tool's own BPF maps (before 5.19 also with their descriptors in hand).
    Bpf = 39,
    /// Follow `/proc/PID/map_files`.
    CheckpointRestore = 40,
}

use Capability::*;

/// What every tracing tool needs while it runs and reports.
const ALWAYS: [Capability; 7] = [
    DacReadSearch,
    SysChroot,
    SysPtrace,
    Syslog,
    Perfmon,
    Bpf,
    CheckpointRestore,
];

/// What writing files takes on top.
pub const FOR_FILES: &[Capability] = &[DacOverride, Fowner];

/// What a command takes on top.
pub const FOR_COMMAND: &[Capability] = &[Kill];

/// Gives up all capabilities but those that tracing and reporting need and `also`, and any hope for new ones. For the
/// calling thread and those that it makes from now on: helpers give up theirs by [`give_up_all`].
///
/// # Errors
///
/// The kernel's, which has no reason to refuse.
pub fn keep_for_tracing(also: &[&[Capability]]) -> io::Result<()> {
    let mut kept = mask(&ALWAYS) | also.iter().fold(0, |sum, list| sum | mask(list));
    if !kernel_knows(CheckpointRestore) {
        kept |= mask(&[SysAdmin]);
    }
    keep(kept)
}

/// Gives up all capabilities of the calling thread but `kept`, as far as it has those.
///
/// # Errors
///
/// The kernel's, which has no reason to refuse.
pub(crate) fn keep_only(kept: &[Capability]) -> io::Result<()> {
    keep(mask(kept))
}

/// Gives up all capabilities of the calling thread, which is to handle open descriptors only.
///
/// # Errors
///
/// The kernel's, which has no reason to refuse.
pub(crate) fn give_up_all() -> io::Result<()> {
    keep(0)
}

fn mask(list: &[Capability]) -> u64 {
    list.iter().fold(0, |sum, &one| sum | 1 << one as u32)
}

/// `PR_CAPBSET_READ` fails for numbers that the kernel does not know.
fn kernel_knows(capability: Capability) -> bool {
    // SAFETY: takes plain numbers.
    unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability as libc::c_ulong, 0, 0, 0) >= 0 }
}

/// `struct __user_cap_header_struct`; process 0 is the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`, of which there are two: low and high halves.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`
const VERSION: u32 = 0x2008_0522;

fn keep(kept: u64) -> io::Result<()> {
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut halves = [Half::default(); 2];
    // SAFETY: the header is valid and version 3 fills two halves.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, halves.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for (half, kept) in halves.iter_mut().zip([kept, kept >> 32]) {
        // Cut to the half on purpose.
        let kept = u32::try_from(kept & u64::from(u32::MAX)).expect("masked");
        half.effective &= kept;
        half.permitted &= kept;
        half.inheritable = 0;
    }
    // SAFETY: as above; nothing is written.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, halves.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes plain numbers. Without it an exec as root would bring everything back.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(field: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_keeps_what_it_had_of_what_is_kept() {
        let before = own("CapPrm:");
        let thread = std::thread::spawn(move || {
            keep_for_tracing(&[FOR_COMMAND]).unwrap();
            assert_eq!(own("CapEff:"), own("CapPrm:"));
            let allowed = mask(&ALWAYS) | mask(FOR_COMMAND);
            assert_eq!(own("CapPrm:"), before & allowed);
            assert_eq!(own("NoNewPrivs:"), 1);
            give_up_all().unwrap();
            assert_eq!(own("CapPrm:"), 0);
        });
        thread.join().unwrap();
        assert_eq!(own("CapPrm:"), before, "other threads keep theirs");
    }
}
