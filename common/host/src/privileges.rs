//! Gives up what a tool does not need any more, once it is attached.
//!
//! A tool begins with all of root's capabilities and reads other people's files for minutes. What it keeps is listed here
//! with the reason; whatever it did not have it does not get.

use std::fs::File;
use std::io::{self, Read};

pub use rustix::thread::CapabilitySet as Capabilities;
use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use crate::remedies;

/// Needs of every tracing tool while it runs and reports.
const ALWAYS: Capabilities = Capabilities::empty()
    // Open the files that other users' processes have mapped.
    .union(Capabilities::DAC_READ_SEARCH)
    // Shut in the processes that need no files.
    .union(Capabilities::SYS_CHROOT)
    // Read other processes' `maps`, `root` and stacks.
    .union(Capabilities::SYS_PTRACE)
    // See addresses in `/proc/kallsyms`.
    .union(Capabilities::SYSLOG)
    .union(NEWER);

/// SYS_ADMIN has to stand in for any of these that the kernel or the container lacks.
const NEWER: Capabilities = Capabilities::empty()
    // Open perf events.
    .union(Capabilities::PERFMON)
    // Read and write the tool's own BPF maps (before 5.19 also with their descriptors in hand).
    .union(Capabilities::BPF)
    // Follow `/proc/PID/map_files`.
    .union(Capabilities::CHECKPOINT_RESTORE);

/// Needs of writing files on top.
pub const FOR_FILES: Capabilities = Capabilities::empty()
    // Write where a user's `-o FILE` points, though the directory be somebody else's.
    .union(Capabilities::DAC_OVERRIDE)
    // Replace somebody else's file in a sticky directory.
    .union(Capabilities::FOWNER);

/// Needs of a command on top: a signal is forwarded to it though it has changed its user.
pub const FOR_COMMAND: Capabilities = Capabilities::KILL;

/// Needs of waiting for the next trigger on top.
pub const FOR_REPETITION: Capabilities = FOR_PROBES
    // Be first when a trigger fires.
    .union(Capabilities::SYS_NICE)
    // PSI triggers with windows below 2 s.
    .union(Capabilities::SYS_RESOURCE);

/// Needs of a next capture on top: its BPF programs are measured, and uprobes placed again.
pub const FOR_PROBES: Capabilities = Capabilities::SYS_ADMIN;

/// Lacks of stacks and names without a capability, in the words of docs/capabilities.md.
const SEEING: [(Capabilities, &str, &str); 4] = [
    (
        Capabilities::SYS_PTRACE,
        "CAP_SYS_PTRACE",
        "other users' stacks",
    ),
    (
        Capabilities::DAC_READ_SEARCH,
        "CAP_DAC_READ_SEARCH",
        "names in private and deleted files",
    ),
    (
        Capabilities::CHECKPOINT_RESTORE,
        "CAP_CHECKPOINT_RESTORE",
        "names in deleted files",
    ),
    (Capabilities::SYSLOG, "CAP_SYSLOG", "kernel names"),
];

/// Says what stacks and names will lack for want of capabilities; for tools that take stacks.
pub fn say_unseen(tool: &str) {
    let mut has = with_stand_in(effective());
    if !kernel_names_are_hidden() {
        has |= Capabilities::SYSLOG;
    }
    let lacks = SEEING.iter().filter(|(one, ..)| !has.contains(*one));
    let lacks = lacks.map(|(_, name, what)| format!("{what} ({name})"));
    let lacks: Vec<String> = lacks.collect();
    if !lacks.is_empty() {
        let lacks = lacks.join(", ");
        profile::say!("{tool}: not seen: {lacks}; run it as root, or with these");
    }
}

/// Looks whether all addresses read as zeros in the list of symbols, which depends on sysctls, too. Real ones may begin with one.
fn kernel_names_are_hidden() -> bool {
    let mut beginning = [0; 4096];
    let read = File::open("/proc/kallsyms").and_then(|mut file| file.read(&mut beginning));
    let lines = beginning[..read.unwrap_or(0)].split(|&byte| byte == b'\n');
    let addresses = lines.filter_map(|line| line.first_chunk::<16>());
    addresses.into_iter().all(|address| *address == [b'0'; 16])
}

/// These with those that SYS_ADMIN stands in for.
fn with_stand_in(has: Capabilities) -> Capabilities {
    if has.contains(Capabilities::SYS_ADMIN) {
        has | NEWER
    } else {
        has
    }
}

/// Gives up all capabilities but those that tracing and reporting need and `also`, and any hope for new ones. For the
/// calling thread and those that it makes from now on; the threads that make unwind tables have none from their start.
///
/// Says so on stderr where the system does not let it.
pub fn keep_for_tracing(tool: &str, also: Capabilities) {
    if let Err(error) = keep_only(ALWAYS | also) {
        let cause = remedies::cause(&error);
        profile::say!("{tool}: privileges that it does not need are kept: {cause}");
    }
}

/// Gives up all capabilities of the calling thread but `kept`, as far as it has those.
///
/// # Errors
///
/// The kernel's, which has no reason to refuse.
pub fn keep_only(kept: Capabilities) -> io::Result<()> {
    let now = capabilities(None)?;
    let kept = kept | stand_in(kept, now.permitted);
    let then = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: Capabilities::empty(),
    };
    set_capabilities(None, then)?;
    // Without it an exec as root would bring everything back.
    Ok(set_no_new_privs(true)?)
}

/// Capabilities of the calling thread; the kernel's own refusals have to do if it does not say.
pub fn effective() -> Capabilities {
    capabilities(None).map_or(Capabilities::all(), |now| now.effective)
}

/// Tells whether the tool has all that tracing takes: what is refused then is refused by something else.
pub fn suffice() -> bool {
    with_stand_in(effective()).contains(NEWER | Capabilities::SYS_PTRACE)
}

/// SYS_ADMIN where it has to stand in for one that the kernel or the container does not have.
fn stand_in(kept: Capabilities, permitted: Capabilities) -> Capabilities {
    if permitted.contains(kept & NEWER) {
        Capabilities::empty()
    } else {
        Capabilities::SYS_ADMIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrators_capability_stays_where_a_newer_one_is_missing() {
        let (all, admin) = (Capabilities::all(), Capabilities::SYS_ADMIN);
        assert_eq!(stand_in(ALWAYS, all), Capabilities::empty());
        assert_eq!(stand_in(ALWAYS, all - Capabilities::BPF), admin);
        let none = stand_in(Capabilities::empty(), admin);
        assert_eq!(none, Capabilities::empty(), "nothing to stand in for");
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
            let kept = ALWAYS | FOR_COMMAND;
            let allowed = kept | stand_in(kept, Capabilities::from_bits_retain(before));
            assert_eq!(own("CapPrm:"), before & allowed.bits());
            assert_eq!(own("NoNewPrivs:"), 1);
            keep_only(Capabilities::empty()).unwrap();
            assert_eq!(own("CapPrm:"), 0);
        });
        thread.join().unwrap();
        assert_eq!(own("CapPrm:"), before, "other threads keep theirs");
    }
}
