//! Who waits for trouble must get a CPU when it comes, also when CPUs are the trouble.

/// The highest ordinary priority, until dropped.
pub(crate) struct Urgency {
    /// As it was; `None`: it could not be raised.
    nice: Option<libc::c_int>,
}

impl Urgency {
    /// Without `CAP_SYS_NICE` everything stays as it is.
    pub(crate) fn raise() -> Self {
        // SAFETY: takes no pointers; 0 is this thread.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        Self {
            nice: set_nice(-20).then_some(nice),
        }
    }
}

impl Drop for Urgency {
    fn drop(&mut self) {
        if let Some(nice) = self.nice {
            set_nice(nice);
        }
    }
}

fn set_nice(nice: libc::c_int) -> bool {
    // SAFETY: takes no pointers; 0 is this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}
