//! Processes that share the tool's memory, for calls of the kernel that may take long to return.
//!
//! A thread would do, if only the tool never had to end before: a process is there until the last of its threads is, and one that
//! waits in the kernel cannot be killed. A fork would copy page tables, and hold the locks of all mapped files meanwhile, which on
//! an overloaded machine others may hold for long. So this is vfork(2) without exec, from a thread that has nothing else to do: it
//! waits for the child, as the child uses what belongs to it, but ends with the tool if that comes first.

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::descriptors::close_others;
use crate::privileges::{self, Capabilities};
use crate::scheduling;

/// Between two looks whether there is a child.
const PAUSE: Duration = Duration::from_micros(50);
/// Of the child, bytes.
const STACK: usize = 256 << 10;

/// Instead of a child's number: there is none yet; there is about to be one; there will be none.
const NONE_YET: libc::pid_t = 0;
const STARTING: libc::pid_t = -1;
const NEVER: libc::pid_t = -2;

/// Starts a process that has those of the caller's descriptors that are files or `is_needed` by number and target, of its capabilities those of
/// `may`, and in which `work` gives the exit status. `None`: the system allows no more processes or threads, or made none within `patience`.
///
/// All signals are held back in it. First of all it closes what it does not need: others may read that to its end. Files it keeps: who
/// closes a deleted one last frees its blocks, which took 9 s beside builds and a load of real-time priority, and that is
/// better done by this process than by the tool. Whoever starts it has it watched, for it needs a CPU to do so.
pub fn start(
    is_needed: impl Fn(RawFd, &dyn Fn() -> PathBuf) -> bool + Send + 'static,
    may: Capabilities,
    patience: Duration,
    work: impl FnOnce() -> libc::c_int + Send + 'static,
) -> Option<libc::pid_t> {
    let child = Arc::new(AtomicI32::new(NONE_YET));
    let of_parent = Arc::clone(&child);
    let parent = thread::Builder::new().name("vfork".into());
    let parent = parent.spawn(move || {
        // Where this is refused, it has what its maker has.
        let _ = privileges::keep_only(may);
        let Ok(needed) = needed_descriptors(is_needed) else {
            return of_parent.store(NEVER, Ordering::Release);
        };
        if exchange(&of_parent, STARTING) {
            let work = move || {
                close_others(&needed);
                let status = work();
                // The tool's other threads may be gone, and one of them with the allocator's lock.
                std::mem::forget(needed);
                status
            };
            run(work, &of_parent);
        }
    });
    parent.ok()?;
    scheduling::watch_threads();
    let give_up = Instant::now() + patience;
    loop {
        match child.load(Ordering::Acquire) {
            NEVER => return None,
            NONE_YET if Instant::now() >= give_up && exchange(&child, NEVER) => return None,
            NONE_YET | STARTING => thread::sleep(PAUSE),
            pid => return Some(pid),
        }
    }
}

/// Whether there was no word of the child yet.
fn exchange(child: &AtomicI32, word: libc::pid_t) -> bool {
    let exchanged = child.compare_exchange(NONE_YET, word, Ordering::AcqRel, Ordering::Acquire);
    exchanged.is_ok()
}

/// Returns when the child has ended. The kernel writes its number into `child` before it runs.
fn run<W: FnOnce() -> libc::c_int>(work: W, child: &AtomicI32) {
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    let mut work = Some(work);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
    // SAFETY: sigset_t is plain memory that sigfillset fills. The stack is the child's alone and lives as long as the child, as
    // does `work`: this thread waits for the child's end, or never runs again. All else that the child uses is this thread's.
    let pid = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::clone(
            do_work::<W>,
            top.cast(),
            flags,
            (&raw mut work).cast(),
            child.as_ptr(),
        )
    };
    if pid < 0 {
        child.store(NEVER, Ordering::Release);
    }
}

/// Frees nothing: where the tool has ended meanwhile, nobody may be there to give back the allocator's lock.
extern "C" fn do_work<W: FnOnce() -> libc::c_int>(work: *mut libc::c_void) -> libc::c_int {
    // SAFETY: what `run` gives.
    let work = unsafe { &mut *work.cast::<Option<W>>() }.take();
    let status = work.map(|work| catch_unwind(AssertUnwindSafe(work)));
    status.and_then(Result::ok).unwrap_or(libc::EIO)
}

/// Descriptors of the process that are needed, and those of files, in order.
fn needed_descriptors(
    is_needed: impl Fn(RawFd, &dyn Fn() -> PathBuf) -> bool,
) -> io::Result<Vec<RawFd>> {
    let mut needed = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let target = || fs::read_link(&path).unwrap_or_default();
        needed.extend(number.filter(|fd| is_file(*fd) || is_needed(*fd, &target)));
    }
    needed.sort_unstable();
    Ok(needed)
}

fn is_file(fd: RawFd) -> bool {
    // SAFETY: stat is plain memory that fstat fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::forked;

    fn status_of(pid: libc::pid_t) -> libc::c_int {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = forked::status_of(pid) {
                forked::reap(pid);
                return status;
            }
            assert!(Instant::now() < give_up, "{pid} goes on");
            thread::sleep(PAUSE);
        }
    }

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: plain numbers.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn child_shares_memory_and_has_what_it_needs() {
        let (kept, other) = std::io::pipe().expect("a pipe");
        let file = tempfile::tempfile().expect("a file");
        let (kept_fd, other_fd, file_fd) = (kept.as_raw_fd(), other.as_raw_fd(), file.as_raw_fd());
        let seen = Arc::new(AtomicI32::new(0));
        let seen_by_child = Arc::clone(&seen);
        let pid = start(
            move |fd, _| fd == kept_fd,
            Capabilities::empty(),
            Duration::from_secs(60),
            move || {
                let own = rustix::process::getpid().as_raw_pid();
                seen_by_child.store(own, Ordering::Release);
                let wrong = [!is_open(kept_fd), !is_open(file_fd), is_open(other_fd)];
                42 + wrong.map(libc::c_int::from).iter().sum::<libc::c_int>()
            },
        );
        let pid = pid.expect("a child");
        assert_eq!(status_of(pid), 42);
        assert_eq!(seen.load(Ordering::Acquire), pid);
        assert_eq!([kept_fd, other_fd, file_fd].map(is_open), [true; 3]);
    }

    #[test]
    fn panic_stays_in_the_child() {
        let patience = Duration::from_secs(60);
        // Without the hook: helpers that tests beside this one fork set it, which would wait for one that is at work.
        let unwind = || std::panic::resume_unwind(Box::new(()));
        let pid = start(|_, _| false, Capabilities::empty(), patience, unwind);
        assert_eq!(status_of(pid.expect("a child")), libc::EIO);
    }
}
