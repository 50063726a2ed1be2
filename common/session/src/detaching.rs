//! Lets go of BPF programs without waiting for the kernel.
//!
//! The process that closes the last descriptor of a probe waits until no CPU can be in its program any more: grace periods
//! of RCU for each tracepoint, milliseconds on most machines and many seconds on an overloaded one. A child that has these
//! descriptors, too, closes them last, and a tool whose report is out need not stay for that.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use host::forked;
use host::privileges::Capabilities;
use host::scheduling;
use host::sharing;
use host::signals;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Until there is a child.
const PATIENCE: Duration = Duration::from_secs(1);
/// The child is waited for so long: where it takes less, nothing is attached any more when the tool ends.
const FOR_GRACE_PERIODS: Duration = Duration::from_secs(1);

static CHILD: Mutex<Option<Child>> = Mutex::new(None);

struct Child {
    pid: libc::pid_t,
    /// Readable when it is gone.
    gone: OwnedFd,
    /// It keeps its descriptors until this is closed.
    keeps: OwnedFd,
    /// Nobody wants to hear that it takes long.
    quiet: bool,
}

/// To be called when the report is out, before the programs are dropped. Without it, or where it fails, whoever drops them waits.
pub fn hand_over(quiet: bool) {
    let Ok((released, keeps)) = pipe_with(PipeFlags::CLOEXEC) else {
        return;
    };
    let releases = released.as_raw_fd();
    let keeps_fd = move |fd, target: &dyn Fn() -> PathBuf| fd == releases || is_probe(&target());
    let started = sharing::start(keeps_fd, Capabilities::empty(), PATIENCE, move || {
        forked::be_named(c"detach");
        let mut end = 0_u8;
        // SAFETY: room for a byte.
        unsafe { libc::read(releases, (&raw mut end).cast(), 1) };
        0
    });
    let Some(pid) = started else {
        return;
    };
    scheduling::watch_process(pid);
    let gone = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    if let (Some(Ok(gone)), Ok(mut child)) = (gone, CHILD.lock()) {
        *child = Some(Child {
            pid,
            gone,
            keeps,
            quiet,
        });
    }
}

/// To be called last, with the programs dropped: waits a moment for the child. A signal ends the wait.
pub(crate) fn wait(tool: &str) {
    let Some(child) = CHILD.lock().ok().and_then(|mut child| child.take()) else {
        return;
    };
    drop(child.keeps);
    signals::wait(&[child.gone.as_raw_fd()], FOR_GRACE_PERIODS);
    if forked::status_of(child.pid).is_none() {
        // It goes on being looked after, and is raised when the tool ends.
        if !child.quiet {
            profile::say!("{tool}: the kernel still takes the probes away");
        }
        return;
    }
    scheduling::forget_process(child.pid);
    forked::reap(child.pid);
}

fn is_probe(target: &Path) -> bool {
    let target = target.to_string_lossy();
    target.starts_with("anon_inode:bpf") || target == "anon_inode:[perf_event]"
}
