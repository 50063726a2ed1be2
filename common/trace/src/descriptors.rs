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
