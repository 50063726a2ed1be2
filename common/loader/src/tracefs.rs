//! The kernel's list of tracepoints, on machines where nobody has mounted it, too: containers, minimal images.
//!
//! A tracefs that is at none of its usual places is mounted for this process alone: it is attached to no directory
//! (fsmount(2), Linux 5.2), nobody else sees it, and it is gone with the process.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};
use host::perf;
use libbpf_rs::{Link, ProgramMut};
use perf_event_open_sys::bindings::{PERF_TYPE_TRACEPOINT, perf_event_attr};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Its usual places.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Remedy where [`events`] cannot be had.
pub const REMEDY: &str = "tracefs is not mounted; mount -t tracefs none /sys/kernel/tracing";

/// Remedy on kernels without tracepoints of system calls.
const SYSCALLS: &str = "not in this kernel; one built with CONFIG_FTRACE_SYSCALLS=y is needed";

/// Directory of all events: one of each category in it, and in that one of each tracepoint.
///
/// # Errors
///
/// There is none, and none can be mounted.
pub fn events() -> io::Result<PathBuf> {
    static MOUNT: OnceLock<Result<OwnedFd, i32>> = OnceLock::new();
    let mut places = PLACES
        .map(|place| Path::new(place).join("events"))
        .into_iter();
    // A place that may not be looked into is one.
    if let Some(events) = places.find(|events| !matches!(events.try_exists(), Ok(false))) {
        return Ok(events);
    }
    let mount = MOUNT.get_or_init(|| mount().map_err(rustix::io::Errno::raw_os_error));
    match mount {
        Ok(mount) => Ok(format!("/proc/self/fd/{}/events", mount.as_raw_fd()).into()),
        Err(error) => Err(io::Error::from_raw_os_error(*error)),
    }
}

fn mount() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Number of a tracepoint, for perf_event_open(2).
///
/// # Errors
///
/// The kernel has no such tracepoint; or [`events`] cannot be had, with the remedy.
pub fn id(category: &str, name: &str) -> Result<u64> {
    let act = || format!("tracepoint {category}:{name}");
    let events = events().context(REMEDY).with_context(act)?;
    let text = fs::read_to_string(events.join(category).join(name).join("id"));
    let text = text.map_err(|err| match (category, err.kind()) {
        ("syscalls", io::ErrorKind::NotFound) => anyhow!(err).context(SYSCALLS),
        _ => anyhow!(err),
    });
    text.with_context(act)?.trim().parse().with_context(act)
}

/// Attaches a program to a tracepoint: as libbpf does, which knows the usual places only.
///
/// # Errors
///
/// Those of [`id`], and the kernel's refusals.
pub fn attach(program: &ProgramMut<'_>, category: &str, name: &str) -> Result<Link> {
    let attr = perf_event_attr {
        type_: PERF_TYPE_TRACEPOINT,
        size: u32::try_from(size_of::<perf_event_attr>()).expect("a small structure"),
        config: id(category, name)?,
        ..perf_event_attr::default()
    };
    let act = || format!("attach BPF program to tracepoint {category}:{name}");
    // Any CPU will do: the program runs on all of them.
    let cpu = perf::online_cpus().first().copied().unwrap_or(0);
    let event = perf::open(&attr, -1, cpu).with_context(act)?;
    let link = program
        .attach_perf_event(event.as_raw_fd())
        .with_context(act)?;
    // The link closes it.
    let _ = event.into_raw_fd();
    Ok(link)
}
