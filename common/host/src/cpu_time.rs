//! CPU time that the tool itself takes, with that of the processes that work for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::clock_ns;

/// CPU time of the tool, helpers included, ns.
pub fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) + helpers().cpu_ns()
}

/// Processes that work for the tool, and are not its `-- COMMAND`.
struct Helpers {
    alive: Vec<libc::pid_t>,
    /// CPU time of those that are gone.
    gone_ns: u64,
}

static HELPERS: Mutex<Helpers> = Mutex::new(Helpers {
    alive: Vec::new(),
    gone_ns: 0,
});

fn helpers() -> MutexGuard<'static, Helpers> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    fn cpu_ns(&self) -> u64 {
        self.gone_ns + self.alive.iter().map(|&pid| cpu_ns_of(pid)).sum::<u64>()
    }
}

/// From now on the CPU time of this child is the tool's own.
pub fn helper_began(pid: libc::pid_t) {
    helpers().alive.push(pid);
}

/// To be called while the child can still be asked, before it is reaped.
pub fn helper_ends(pid: libc::pid_t) {
    let mut helpers = helpers();
    helpers.alive.retain(|alive| *alive != pid);
    helpers.gone_ns += cpu_ns_of(pid);
}

/// CPU time of a process; 0 when there is no such one.
pub fn cpu_ns_of(pid: libc::pid_t) -> u64 {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is valid to write to.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => clock_ns(clock),
        _ => 0,
    }
}
