//! Open files, and how many there may be: the tool takes what it is allowed to, its command keeps what the caller had.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than all that is held of other processes' files, and of probes.
const ENOUGH: u64 = 65_536;

/// The caller's limit.
static BEFORE: OnceLock<Limit> = OnceLock::new();

/// A soft and a hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Files that may be open now.
    pub soft: u64,
    hard: u64,
}

impl Limit {
    /// This process's.
    pub fn now() -> Self {
        let limit = getrlimit(Resource::Nofile);
        Self {
            soft: limit.current.unwrap_or(libc::RLIM_INFINITY),
            hard: limit.maximum.unwrap_or(libc::RLIM_INFINITY),
        }
    }

    /// That of who started the tool, which its command is to have.
    pub fn before() -> Self {
        *BEFORE.get_or_init(Self::now)
    }

    /// The soft limit for the tool itself.
    fn raised(self) -> Self {
        Self {
            soft: self.soft.max(self.hard.min(ENOUGH)),
            ..self
        }
    }

    /// Makes it this process's; where that is refused, the limit stays. Async-signal-safe.
    pub fn set(self) {
        let limit = Rlimit {
            current: Some(self.soft),
            maximum: Some(self.hard),
        };
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Number of descriptors that this process may have open; what is held of other processes is cut to fit.
pub fn allowed() -> usize {
    usize::try_from(Limit::now().soft)
        .unwrap_or(usize::MAX)
        .clamp(256, 4096)
}

/// More than a tool commonly has open at a time.
const ROOM: RawFd = 1_024;

/// Makes the table of open files larger, while there is one thread: with several of them the kernel waits for a grace period
/// each time (`expand_fdtable`), and on an overloaded machine that can take long.
pub fn make_room() {
    // Closed at once; where one cannot be had, the table grows when it must.
    let far = |first| fcntl_dupfd_cloexec(first, ROOM - 1);
    let _ = epoll::create(epoll::CreateFlags::CLOEXEC).and_then(far);
}

/// Lets the tool have as many files open as the hard limit allows: the usual soft one is for programs that call select().
pub fn raise_limit() {
    Limit::before().raised().set();
}

/// A file in memory, which also is where there is no /dev.
pub fn memory(name: &CStr) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Closes all descriptors but these, which are in order. They must be the caller's alone: of a fork, or of a process that
/// shares none.
pub fn close_others(needed: &[RawFd]) {
    let mut first = 0;
    for fd in needed {
        if *fd > first {
            close_range(first, *fd - 1);
        }
        first = *fd + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: plain numbers.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // Before Linux 5.9.
    let most = allowed().max(65_536);
    for fd in first..=last.min(RawFd::try_from(most).unwrap_or(65_536)) {
        // SAFETY: a plain number.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_within_the_hard_one_and_never_lowered() {
        for (soft, hard, raised) in [
            (1024, 4096, 4096),
            (1024, 1 << 20, ENOUGH),
            (1024, 1024, 1024),
            (1 << 20, 1 << 20, 1 << 20),
            (1024, libc::RLIM_INFINITY, ENOUGH),
        ] {
            let limit = Limit { soft, hard }.raised();
            assert_eq!((limit.soft, limit.hard), (raised, hard));
        }
    }
}
