//! Lets go of BPF programs without waiting for the kernel.
//!
//! The process that closes the last descriptor of a probe waits until no CPU can be in its program any more: grace periods
//! of RCU for each tracepoint, milliseconds on most machines and many seconds on an overloaded one. A child that has these
//! descriptors, too, closes them last, and a tool whose report is out need not stay for that.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::{forked, scheduling, signals};

/// The child is waited for so long: where it takes less, nothing is attached any more when the tool ends.
const PATIENCE: Duration = Duration::from_secs(1);

static CHILD: Mutex<Option<Child>> = Mutex::new(None);

struct Child {
    pid: libc::pid_t,
    /// Readable when it is gone.
    gone: OwnedFd,
    /// It keeps its descriptors until this is closed.
    keeps: OwnedFd,
}

/// To be called when the report is out, before the programs are dropped. Without it, or where it fails, whoever drops them waits.
pub fn hand_over() {
    let Ok((released, keeps)) = pipe() else {
        return;
    };
    let (tell, told) = mpsc::channel();
    // A child that has no CPU could not close what others read to its end, or what it must not keep locked: it is forked
    // without.
    let forker = thread::Builder::new().name("detach".into());
    let forker = forker.spawn(move || {
        let _ = tell.send(fork_with_probes(released));
    });
    scheduling::watch_threads();
    // No more threads or processes allowed, or none in time.
    let forked = forker.ok().and_then(|_| told.recv_timeout(PATIENCE).ok());
    let Some(Ok(pid)) = forked else {
        return;
    };
    scheduling::watch_process(pid);
    // SAFETY: plain numbers; the descriptor is checked before it is owned.
    let gone = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0);
        fd.map(|fd| OwnedFd::from_raw_fd(fd))
    };
    if let (Some(gone), Ok(mut child)) = (gone, CHILD.lock()) {
        *child = Some(Child { pid, gone, keeps });
    }
}

/// Ends of a pipe: to read from, to write to.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which nobody else has yet.
    unsafe {
        forked::check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Gives the calling thread descriptors of its own and forks a child that has the probes' and ends when the pipe is closed.
fn fork_with_probes(released: OwnedFd) -> io::Result<libc::pid_t> {
    // SAFETY: a plain number. What is closed from here on is this thread's alone.
    forked::check(unsafe { libc::unshare(libc::CLONE_FILES) })?;
    let released = released.into_raw_fd();
    for fd in strangers()? {
        if fd != released {
            // SAFETY: nothing of this thread's uses them.
            unsafe { libc::close(fd) };
        }
    }
    let pid = forked::fork()?;
    if pid == 0 {
        // SAFETY: a C string, numbers and a byte; nothing that the parent registered is run. All signals are held back.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, c"detach".as_ptr(), 0, 0, 0);
            let mut end = 0_u8;
            libc::read(released, (&raw mut end).cast(), 1);
            libc::_exit(0)
        }
    }
    // Not when the thread ends, for it might be the last one to close them then.
    forked::close_from(0);
    Ok(pid)
}

/// Descriptors of the calling thread that are neither BPF's nor perf's.
fn strangers() -> io::Result<Vec<RawFd>> {
    let mut strangers = Vec::new();
    for entry in fs::read_dir("/proc/thread-self/fd")? {
        let path = entry?.path();
        let number: Option<RawFd> = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let target = fs::read_link(&path).unwrap_or_default();
        let target = target.to_string_lossy();
        let is_probe = target.starts_with("anon_inode:bpf") || target == "anon_inode:[perf_event]";
        strangers.extend(number.filter(|_| !is_probe));
    }
    Ok(strangers)
}

/// To be called last, with the programs dropped: waits a moment for the child. A signal ends the wait.
pub(crate) fn wait(tool: &str) {
    let Some(child) = CHILD.lock().ok().and_then(|mut child| child.take()) else {
        return;
    };
    drop(child.keeps);
    signals::wait(&[child.gone.as_raw_fd()], PATIENCE);
    if !is_over(child.pid) {
        // It goes on being looked after, and is raised when the tool ends.
        crate::say!("{tool}: the kernel still takes the probes away");
        return;
    }
    scheduling::forget_process(child.pid);
    // SAFETY: our child, not reaped yet; a null pointer asks for no status.
    unsafe { libc::waitpid(child.pid, std::ptr::null_mut(), libc::WNOHANG) };
}

/// A child has ended. It is not reaped.
fn is_over(pid: libc::pid_t) -> bool {
    let id = libc::id_t::try_from(pid).expect("a process ID");
    // SAFETY: siginfo_t is plain memory; waitid leaves it zero where nobody has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, id, &raw mut info, options) != 0 || info.si_pid() == pid
    }
}
