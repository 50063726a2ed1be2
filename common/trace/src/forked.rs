//! A process of our own for what may not happen in the tool itself: it may die, or wait for ever, and is given up then.
//!
//! It has one socket to its parent and no other descriptor: BPF programs stay attached while anybody has them open. For the
//! same reason none of the parent's shared memory is mapped in it.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, getppid,
    kill_process, pidfd_open, set_parent_process_death_signal, setrlimit, waitid, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::set_name;
use serde::Serialize;

use crate::wire::{self, Message};
use crate::{descriptors, meter, procs, scheduling};

/// So many descriptors are standard ones.
const STANDARD: RawFd = 3;
/// For a process that could go on if it had a CPU.
const PATIENCE_WITH_LOAD: Duration = Duration::from_secs(10);
/// Until a killed process is gone, which takes microseconds; one that waits for a file system that does not answer stays
/// until that does, while the report is waited for.
const TO_DIE: Duration = Duration::from_millis(50);

/// A running process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Forked {
    pid: libc::pid_t,
    socket: UnixStream,
}

impl Forked {
    /// Forks; `serve` runs in the child, under the name `name`, and the child ends with it. Nothing of the parent is
    /// dropped there: that is the parent's to do.
    pub(crate) fn start(
        name: &CStr,
        serve: impl FnOnce(&UnixStream) -> io::Result<()>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let parent = getpid();
        match fork()? {
            0 => run(&theirs, name, parent, serve),
            pid => {
                meter::helper_began(pid);
                scheduling::watch_process(pid);
                Ok(Self { pid, socket: ours })
            }
        }
    }

    /// Asks, with a file that the other side is to have.
    pub(crate) fn ask(
        &self,
        question: &impl Serialize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        // It has answered everything before: there is room for the few bytes.
        wire::send(&self.socket, question, file)
    }

    /// Waits `patience` for a message of at most `most` bytes, longer for a process that has no CPU to say it.
    pub(crate) fn hear(
        &self,
        patience: Duration,
        most: usize,
        takes_file: bool,
    ) -> io::Result<Message> {
        let give_up = Instant::now() + patience.max(PATIENCE_WITH_LOAD);
        wire::receive(&self.socket, most, takes_file, || {
            self.wait(patience, give_up)
        })
    }

    /// Until there is something to read, or the end.
    fn wait(&self, patience: Duration, give_up: Instant) -> io::Result<()> {
        loop {
            let patience = patience.min(left(give_up)?);
            let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
            let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut socket, Some(&patience)) {
                Ok(0) if !self.is_runnable() => return Err(io::ErrorKind::TimedOut.into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Its process ID.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// CPU time that it has used.
    pub(crate) fn cpu_ns(&self) -> u64 {
        meter::cpu_ns_of(self.pid)
    }

    /// Whether it could go on if it had a CPU.
    fn is_runnable(&self) -> bool {
        let stat = fs::read(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| procs::is_runnable(&stat))
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        meter::helper_ends(self.pid);
        scheduling::forget_process(self.pid);
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        // Our child, not reaped yet, so that the number is still its own. It is not waited for without end: the file system
        // that it may be waiting for need not ever answer.
        let _ = kill_process(pid, Signal::KILL);
        if let Ok(gone) = pidfd_open(pid, PidfdFlags::empty()) {
            crate::signals::wait(&[gone.as_raw_fd()], TO_DIE);
        }
        reap(self.pid);
    }
}

/// Time until `deadline`.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Forks with all signals held back in the child, until it has put its handlers aside. It begins with the ordinary class.
pub(crate) fn fork() -> io::Result<libc::pid_t> {
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
pub(crate) fn be_named(name: &CStr) {
    let _ = set_name(name);
}

/// Exit status of a child that has ended; 128 and more: a signal ended it. It is not reaped.
pub(crate) fn status_of(pid: libc::pid_t) -> Option<libc::c_int> {
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
pub(crate) fn reap(pid: libc::pid_t) {
    let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
}

fn run(
    socket: &UnixStream,
    name: &CStr,
    parent: Pid,
    serve: impl FnOnce(&UnixStream) -> io::Result<()>,
) -> ! {
    std::panic::set_hook(Box::new(|_| ()));
    // A panic must not unwind into what belongs to the parent.
    let served = catch_unwind(AssertUnwindSafe(|| serve(&settle(socket, name, parent)?)));
    let status = libc::c_int::from(!matches!(served, Ok(Ok(()))));
    // SAFETY: ends the process without running what the parent registered to run at its own end.
    unsafe { libc::_exit(status) }
}

/// Gives the socket under a number that stays.
fn settle(socket: &UnixStream, name: &CStr, parent: Pid) -> io::Result<UnixStream> {
    // SAFETY: plain numbers; the handlers that the fork inherited write into the parent's pipe and must not run.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT] {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    be_named(name);
    limit(Resource::Core, 0)?;
    let socket = keep_descriptors(socket)?;
    drop_shared_memory();
    Ok(socket)
}

pub(crate) fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    Ok(setrlimit(resource, limit)?)
}

/// The socket, nothing behind the standard descriptors, and nothing else.
fn keep_descriptors(socket: &UnixStream) -> io::Result<UnixStream> {
    let null = File::options().read(true).write(true).open("/dev/null");
    let nothing = null.or_else(|_| memory(c"nothing"))?;
    // Behind the standard ones, else one would be closed by another.
    let socket = fcntl_dupfd_cloexec(socket, STANDARD)?;
    let nothing = fcntl_dupfd_cloexec(nothing, STANDARD)?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    drop(nothing);
    descriptors::close_others(&[0, 1, 2, socket.as_raw_fd()]);
    Ok(socket.into())
}

/// A file in memory, which also is where there is no /dev.
pub(crate) fn memory(name: &CStr) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// The parent's BPF maps and ring buffers, which would outlive it with a process that cannot be killed.
fn drop_shared_memory() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let shared = maps.lines().filter(|line| line.contains("anon_inode:"));
    for line in shared {
        let range = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        let address = |text| usize::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range.and_then(|(start, end)| address(start).zip(address(end)))
        {
            // SAFETY: of this process, a fork, which uses nothing of it.
            unsafe { libc::munmap(start as *mut libc::c_void, end - start) };
        }
    }
}
