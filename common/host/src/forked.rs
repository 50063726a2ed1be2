//! Children of the tool.

use std::ffi::CStr;
use std::io;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};
use rustix::thread::set_name;

use crate::scheduling;

/// Forks with all signals held back in the child, until it has put its handlers aside. It begins with the ordinary class.
pub fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: sigset_t is plain memory that sigfillset fills. The child calls what is safe in the fork of a program with
    // threads: it allocates, which glibc provides for, and takes no lock that another thread may have held.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = scheduling::urgently(|| libc::fork());
        let error = io::Error::last_os_error();
        if pid != 0 {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        if pid < 0 { Err(error) } else { Ok(pid) }
    }
}

/// Names the calling process.
pub fn be_named(name: &CStr) {
    let _ = set_name(name);
}

/// Exit status of a child that has ended; 128 and more: a signal ended it. It is not reaped.
pub fn status_of(pid: libc::pid_t) -> Option<libc::c_int> {
    let pid = Pid::from_raw(pid).expect("a process ID");
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(ended) => {
            let ended = ended?;
            let signal = || Some(128 + ended.terminating_signal()?);
            ended.exit_status().or_else(signal)
        }
        // Somebody else has reaped it.
        Err(_) => Some(128),
    }
}

/// Forgets a child that has ended. Its number may be another process's from then on.
pub fn reap(pid: libc::pid_t) {
    let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
}
