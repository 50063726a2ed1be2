//! A test whose programs, and the tool that watches them, share one CPU.
//!
//! The kernel folds the pressure of its CPUs into one figure whenever somebody asks, and every two seconds: a CPU weighs
//! as much as it was busy since. When it last did so is not to be seen, but with one CPU at work it does not matter.

use std::io;
use std::mem::size_of;

/// The first CPU that is allowed, for this thread and for what it starts; all that were allowed again when dropped.
pub(crate) struct OneCpu {
    allowed: libc::cpu_set_t,
}

impl OneCpu {
    pub(crate) fn new() -> Self {
        // SAFETY: an all-zero cpu_set_t is the empty set; it is valid for its size; 0 is the calling thread.
        let (allowed, rc) = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let rc = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            (set, rc)
        };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        let first = (0..libc::CPU_SETSIZE as usize)
            // SAFETY: below the set's size.
            .find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) })
            .expect("a CPU to run on");
        assert_eq!(first, 0, "other CPUs are told from CPU 0");
        // SAFETY: as above.
        let one = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(first, &mut set);
            set
        };
        allow(&one);
        Self { allowed }
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        allow(&self.allowed);
    }
}

fn allow(cpus: &libc::cpu_set_t) {
    // SAFETY: the set is valid for its size; 0 is the calling thread.
    let rc = unsafe {
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), std::ptr::from_ref(cpus))
    };
    // A second panic would end all tests.
    assert!(
        rc == 0 || std::thread::panicking(),
        "{}",
        io::Error::last_os_error()
    );
}
