//! Calls of the kernel that may take long to return, made by processes that nobody waits for.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cpu_time;
use crate::forked;
use crate::privileges::Capabilities;
use crate::scheduling;
use crate::sharing;

/// Those that have not been reaped.
static OUT: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// A process that makes a call.
pub struct Errand(libc::pid_t);

impl Errand {
    /// Starts a process, under the name `name`, with the descriptors `needed`, those of files and the capabilities `may` alone; `call` is made in the child. `None`: the system
    /// allows no more processes or threads, or made none within `patience`.
    pub fn start(
        name: &'static CStr,
        needed: Vec<RawFd>,
        may: Capabilities,
        patience: Duration,
        call: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Option<Self> {
        reap();
        let is_needed = move |fd, _: &dyn Fn() -> PathBuf| needed.contains(&fd);
        let pid = sharing::start(is_needed, may, patience, move || {
            forked::be_named(name);
            match call() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            }
        })?;
        cpu_time::helper_began(pid);
        scheduling::watch_process(pid);
        OUT.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
        Some(Self(pid))
    }

    /// How the call went, once the process has ended.
    pub fn result(&self) -> Option<io::Result<()>> {
        let status = forked::status_of(self.0)?;
        Some(match status {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        })
    }
}

/// Forgets those that have ended. The children that are left when the tool ends are somebody else's.
pub fn reap() {
    let mut out = OUT.lock().unwrap_or_else(PoisonError::into_inner);
    out.retain(|pid| {
        let is_over = forked::status_of(*pid).is_some();
        if is_over {
            cpu_time::helper_ends(*pid);
            scheduling::forget_process(*pid);
            forked::reap(*pid);
        }
        !is_over
    });
}
