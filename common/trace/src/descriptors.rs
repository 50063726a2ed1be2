//! How many files may be open: the tool takes what it is allowed to, its command keeps what the caller had.

use std::sync::OnceLock;

/// More than all that is held of other processes' files, and of probes.
const ENOUGH: u64 = 65_536;

/// The caller's limit.
static BEFORE: OnceLock<Limit> = OnceLock::new();

/// A soft and a hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: u64,
    hard: u64,
}

impl Limit {
    /// This process's.
    pub(crate) fn now() -> Self {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: fills one rlimit.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        Self {
            soft: limit.rlim_cur,
            hard: limit.rlim_max,
        }
    }

    /// That of who started the tool, which its command is to have.
    pub(crate) fn before() -> Self {
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
    pub(crate) fn set(self) {
        let limit = libc::rlimit {
            rlim_cur: self.soft,
            rlim_max: self.hard,
        };
        // SAFETY: reads one rlimit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// Number of descriptors that this process may have open; what is held of other processes is cut to fit.
pub(crate) fn allowed() -> usize {
    usize::try_from(Limit::now().soft)
        .unwrap_or(usize::MAX)
        .clamp(256, 4096)
}

/// More than a tool commonly has open at a time.
const ROOM: libc::c_int = 1_024;

/// Makes the table of open files larger, while there is one thread: with several of them the kernel waits for a grace period
/// each time (`expand_fdtable`), and on an overloaded machine that can take long.
pub(crate) fn make_room() {
    // SAFETY: two descriptors of our own, closed once each; where one cannot be had, the table grows when it must.
    unsafe {
        let first = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let far = libc::fcntl(first, libc::F_DUPFD_CLOEXEC, ROOM - 1);
        for descriptor in [first, far].into_iter().filter(|at| *at >= 0) {
            libc::close(descriptor);
        }
    }
}

/// Lets the tool have as many files open as the hard limit allows: the usual soft one is for programs that call select().
pub(crate) fn raise_limit() {
    Limit::before().raised().set();
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
