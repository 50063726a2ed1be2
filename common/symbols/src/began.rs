//! When a process began, out of /proc/PID/stat, on the clocks of samples and of files.

use std::time::{Duration, SystemTime};

use host::clock::{clock_ns, monotonic_ns};
use host::procs;

/// Unit of a process's start: USER_HZ, which is 100 on every architecture that these tools run on.
const TICK_NS: u64 = 10_000_000;

/// One moment on two clocks, at most a tick early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Began {
    /// CLOCK_MONOTONIC; 0 if it was before the clock's beginning as of now (the machine has slept since).
    pub(super) monotonic_ns: u64,
    /// As the clock of files would have shown if it never had been set since.
    pub(super) wall: SystemTime,
}

/// `None`: the process is gone.
pub(super) fn began(tgid: u32) -> Option<Began> {
    let start_ns = procs::start_ticks(tgid)?.checked_mul(TICK_NS)?;
    let age_ns = clock_ns(libc::CLOCK_BOOTTIME).saturating_sub(start_ns);
    Some(Began {
        monotonic_ns: monotonic_ns().saturating_sub(age_ns),
        wall: SystemTime::now().checked_sub(Duration::from_nanos(age_ns))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_begins_between_two_looks_at_the_clock() {
        let before = monotonic_ns();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let after = monotonic_ns();
        let began = began(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let began = began.unwrap().monotonic_ns;
        assert!(
            before <= began + 2 * TICK_NS && began <= after,
            "{before} {began} {after}"
        );
        assert!(super::began(u32::MAX).is_none());
    }
}
