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
    /// Measure BPF programs of a next capture; place uprobes again; and all that the last three are for, where those are missing.
    SysAdmin = 21,
    /// Be first when a trigger fires.
    SysNice = 23,
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

/// What waiting for the next trigger takes on top.
pub const FOR_REPETITION: &[Capability] = &[SysAdmin, SysNice, SysResource];

/// Gives up all capabilities but those that tracing and reporting need and `also`, and any hope for new ones. For the
/// calling thread and those that it makes from now on; the threads that make unwind tables have none from their start.
///
/// Says so on stderr where the system does not let it.
pub fn keep_for_tracing(tool: &str, also: &[Capability]) {
    if let Err(error) = keep(mask(&ALWAYS) | mask(also)) {
        crate::say!("{tool}: privileges that it does not need are kept: {error}");
    }
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
    let permitted = u64::from(halves[0].permitted) | u64::from(halves[1].permitted) << 32;
    let kept = kept | stand_in(kept, permitted);
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

/// CAP_SYS_ADMIN where it has to stand in for one that the kernel or the container does not have.
fn stand_in(kept: u64, permitted: u64) -> u64 {
    let newer = mask(&[Perfmon, Bpf, CheckpointRestore]);
    if kept & newer & !permitted == 0 {
        0
    } else {
        mask(&[SysAdmin])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrators_capability_stays_where_a_newer_one_is_missing() {
        let (all, admin) = (u64::MAX, mask(&[SysAdmin]));
        assert_eq!(stand_in(mask(&ALWAYS), all), 0);
        assert_eq!(stand_in(mask(&ALWAYS), all & !mask(&[Bpf])), admin);
        assert_eq!(stand_in(0, admin), 0, "nothing to stand in for");
    }

    fn own(field: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_keeps_what_it_had_of_what_is_kept() {
        let before = own("CapPrm:");
        let thread = std::thread::spawn(move || {
            keep_for_tracing("test", FOR_COMMAND);
            assert_eq!(own("CapEff:"), own("CapPrm:"));
            let kept = mask(&ALWAYS) | mask(FOR_COMMAND);
            let allowed = kept | stand_in(kept, before);
            assert_eq!(own("CapPrm:"), before & allowed);
            assert_eq!(own("NoNewPrivs:"), 1);
            give_up_all().unwrap();
            assert_eq!(own("CapPrm:"), 0);
        });
        thread.join().unwrap();
        assert_eq!(own("CapPrm:"), before, "other threads keep theirs");
    }
}
