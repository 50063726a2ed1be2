//! Threads of a process before tracing begins: those that sleep may be waiting already.

use std::collections::HashMap;

use host::procs;
use host::task::threads_of;

/// A thread, as the kernel counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asleep {
    /// Its ID here.
    pub(super) tid: u32,
    /// Times that it has left a CPU.
    pub(super) switches: u64,
}

/// All threads of a process, by the IDs that it knows them by itself.
#[derive(Default)]
pub(super) struct Sleepers(HashMap<u32, Asleep>);

impl Sleepers {
    pub(super) fn of(tgid: u32) -> Self {
        let threads = threads_of(tgid);
        Self(threads.filter_map(|tid| read(tgid, tid)).collect())
    }

    /// The thread with this ID of its own, if it was there.
    pub(super) fn get(&self, own: u32) -> Option<&Asleep> {
        self.0.get(&own)
    }
}

impl Asleep {
    /// Looks whether a thread of a process has not run since.
    pub(super) fn sleeps_still(self, tgid: u32) -> bool {
        read(tgid, self.tid).is_some_and(|(_, now)| now == self)
    }
}

fn read(tgid: u32, tid: u32) -> Option<(u32, Asleep)> {
    let status = procs::thread_status(tgid, tid).ok()?;
    parse(&status, tid)
}

fn parse(status: &str, tid: u32) -> Option<(u32, Asleep)> {
    let number = |name| procs::number(status, name);
    let own = procs::words(status, "NSpid:")?.last()?.parse().ok()?;
    let switches = number("voluntary_ctxt_switches:")? + number("nonvoluntary_ctxt_switches:")?;
    Some((own, Asleep { tid, switches }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_its_innermost_id() {
        let status = "Name:\tjava\nNSpid:\t4711\t17\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        let asleep = Asleep {
            tid: 4711,
            switches: 42,
        };
        assert_eq!(parse(status, 4711), Some((17, asleep)));
        assert_eq!(parse("NSpid:\t4711\n", 4711), None);
    }

    #[test]
    fn a_thread_that_is_gone_does_not_sleep() {
        let gone = Asleep {
            tid: u32::MAX,
            switches: 0,
        };
        assert!(!gone.sleeps_still(std::process::id()));
        assert!(Sleepers::of(u32::MAX).get(1).is_none());
    }
}
