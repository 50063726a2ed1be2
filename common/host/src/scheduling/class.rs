//! Scheduling classes of threads, by sched_setattr(2).

use std::io;

/// Of a thread of ours among all that have real-time priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// Before ordinary threads.
    Last = 1,
    /// Before what hogs have as a rule.
    First = 98,
    /// The highest that there is.
    Guard = 99,
}

/// `struct sched_attr` of `linux/sched/types.h`, version 0; times in ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const ROUND_ROBIN: u32 = 2;
/// Forked children begin with the ordinary class.
const RESET_ON_FORK: u64 = 1;

impl Class {
    /// Before ordinary threads, and before other real-time threads of lower priority. Not the deadline class: when a CPU goes or
    /// comes just after a thread has left that class, kernels (6.1, 6.12 at least) never take back what it was promised, and in
    /// the end refuse to take a CPU offline (EBUSY).
    pub(super) fn real_time(priority: Priority) -> Self {
        Self {
            policy: ROUND_ROBIN,
            flags: RESET_ON_FORK,
            priority: priority as u32,
            ..Self::default()
        }
    }

    /// The same, for threads that are made meanwhile, too.
    pub(super) fn real_time_inherited() -> Self {
        Self {
            flags: 0,
            ..Self::real_time(Priority::Last)
        }
    }

    /// An overloaded machine can starve everything but real time and deadlines.
    pub(super) fn can_starve(&self) -> bool {
        const FIFO: u32 = 1;
        const DEADLINE: u32 = 6;
        ![FIFO, ROUND_ROBIN, DEADLINE].contains(&self.policy)
    }
}

/// The class of a thread; 0 is the calling one.
pub(super) fn class_of(tid: libc::pid_t) -> io::Result<Class> {
    let mut class = Class::default();
    let size = size_of::<Class>();
    // SAFETY: `class` has room for `size` bytes.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut class, size, 0) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(class)
}

/// Puts a thread into a class; 0 is the calling one.
pub(super) fn set_class(tid: libc::pid_t, class: Class) -> io::Result<()> {
    let size = u32::try_from(size_of::<Class>()).expect("48 bytes");
    let class = Class { size, ..class };
    // SAFETY: reads `size` bytes.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const class, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_class_can_starve() {
        let own = class_of(0).expect("of this thread");
        assert!(own.can_starve(), "{own:?}");
        assert!(!Class::real_time(Priority::Last).can_starve());
    }

    #[test]
    fn own_class_can_be_set_again() {
        let own = class_of(0).expect("of this thread");
        set_class(0, own).expect("no privilege is needed to stay as one is");
        assert_eq!(class_of(0).expect("of this thread"), own);
    }
}
