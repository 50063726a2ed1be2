//! Processes of our own for what may not happen in the tool itself, and all that they may do: one may die, or wait for ever,
//! and is given up then.
//!
//! Each has one socket to its parent and no other descriptor: BPF programs stay attached while anybody has them open. For
//! the same reason none of the parent's shared memory is mapped in it.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use host::cpu_time;
use host::descriptors;
use host::forked::{be_named, fork, reap};
use host::privileges::{Capabilities, keep_only};
use host::procs;
use host::scheduling;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, chdir, chroot, getpid, getppid, kill_process,
    pidfd_open, set_parent_process_death_signal, setrlimit,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use serde::Serialize;

use crate::wire::{self, Message};

/// A helper's purpose, and all that it may do.
pub struct Role {
    name: &'static CStr,
    /// Those of the tool's capabilities that it keeps.
    keeps: Capabilities,
    /// Else its own directory of `/proc` is all that it sees: names lead nowhere.
    sees_files: bool,
    /// At most so many bytes of heap beyond what it inherits; it is the first to go when memory runs out.
    heap: Option<u64>,
}

/// Reads other processes' memory: may look into them.
pub(crate) const READS_MEMORY: Role = Role {
    name: c"read-memory",
    keeps: Capabilities::SYS_PTRACE,
    sees_files: false,
    heap: None,
};

/// Opens other people's files: may look into processes, and at what only their users may read.
pub const OPENS_FILES: Role = Role {
    name: c"open-files",
    keeps: Capabilities::DAC_READ_SEARCH
        .union(Capabilities::SYS_PTRACE)
        .union(Capabilities::CHECKPOINT_RESTORE),
    sees_files: true,
    heap: None,
};

/// Reads names in files that it is given: opening a descriptor again asks for the permission once more. Compressed debug
/// information of a browser unpacks to 3 GiB.
pub const READS_NAMES: Role = Role {
    name: c"read-names",
    keeps: Capabilities::DAC_READ_SEARCH,
    sees_files: false,
    heap: Some(4 << 30),
};

/// Bytes of heap on a machine with little memory, at least.
const MIN_HEAP: u64 = 256 << 20;
/// Number of standard descriptors.
const STANDARD: RawFd = 3;
/// Patience with a process that could go on if it had a CPU.
const PATIENCE_WITH_LOAD: Duration = Duration::from_secs(10);
/// Patience with one that waits and does not wake, most likely for a page of a file: a disk that is only busy delivers one in
/// less, while a report is waited for.
const PATIENCE_WITH_A_DISK: Duration = Duration::from_secs(2);
/// Between two looks at whether a helper wakes.
const LOOK: Duration = Duration::from_millis(250);
/// Until a killed process is gone, which takes microseconds; one that waits for a file system that does not answer stays
/// until that does, while the report is waited for.
const TO_DIE: Duration = Duration::from_millis(50);

/// A running process; killed when dropped.
#[derive(Debug)]
pub struct Helper {
    pid: libc::pid_t,
    socket: UnixStream,
}

impl Helper {
    /// The one that is there, or a new one, see [`Self::start`]. It is to be put back once it has answered.
    pub fn take_or_start(
        idle: &mut Option<Self>,
        role: &Role,
        serve: impl FnOnce(&UnixStream) -> io::Result<()>,
    ) -> io::Result<Self> {
        idle.take().map_or_else(|| Self::start(role, serve), Ok)
    }

    /// Forks; `serve` runs in the child, which may do what `role` says, and the child ends with it. Nothing of the parent is
    /// dropped there: that is the parent's to do.
    pub fn start(
        role: &Role,
        serve: impl FnOnce(&UnixStream) -> io::Result<()>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let parent = getpid();
        match fork()? {
            0 => run(&theirs, role, parent, serve),
            pid => {
                cpu_time::helper_began(pid);
                scheduling::watch_process(pid);
                // One that is no longer itself may answer and not read.
                ours.set_write_timeout(Some(PATIENCE_WITH_LOAD))?;
                Ok(Self { pid, socket: ours })
            }
        }
    }

    /// Asks, with a file that the other side is to have.
    pub fn ask(&self, question: &impl Serialize, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        wire::send(&self.socket, question, file)
    }

    /// Waits `patience` for a message of at most `most` bytes, longer for a process that has no CPU to say it, and less for one that
    /// does not wake.
    pub fn hear(&self, patience: Duration, most: usize, takes_file: bool) -> io::Result<Message> {
        let give_up = Instant::now() + patience.max(PATIENCE_WITH_LOAD);
        wire::receive(&self.socket, most, takes_file, || {
            self.wait(patience, give_up)
        })
    }

    /// Until there is something to read, or the end.
    fn wait(&self, patience: Duration, give_up: Instant) -> io::Result<()> {
        let lose_patience = Instant::now() + patience;
        // Most answers are there at once: it is asked if it wakes where one is not, so that silence is noticed one look later.
        let mut last_woke = (None, Instant::now());
        loop {
            let step = LOOK.min(patience).min(left(give_up)?);
            let step = Timespec::try_from(step).map_err(io::Error::other)?;
            let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut socket, Some(&step)) {
                Ok(0) if !self.is_runnable() => {
                    let switches = self.switches();
                    if switches != last_woke.0 {
                        last_woke = (switches, Instant::now());
                    }
                    if last_woke.1.elapsed() >= PATIENCE_WITH_A_DISK {
                        return Err(io::Error::from_raw_os_error(libc::ETIME));
                    }
                    if Instant::now() >= lose_patience {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Ok(0) => last_woke.1 = Instant::now(),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Times that it left a CPU of itself: each page that it had to wait for is one.
    fn switches(&self) -> Option<u64> {
        let status = procs::status(u32::try_from(self.pid).ok()?).ok()?;
        procs::number(&status, "voluntary_ctxt_switches:")
    }

    /// Its process ID.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// CPU time that it has used.
    pub fn cpu_ns(&self) -> u64 {
        cpu_time::cpu_ns_of(self.pid)
    }

    /// Looks whether it could go on if it had a CPU.
    fn is_runnable(&self) -> bool {
        let stat = fs::read(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| procs::is_runnable(&stat))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        cpu_time::helper_ends(self.pid);
        scheduling::forget_process(self.pid);
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        // Our child, not reaped yet, so that the number is still its own. It is not waited for without end: the file system
        // that it may be waiting for need not ever answer.
        let _ = kill_process(pid, Signal::KILL);
        if let Ok(gone) = pidfd_open(pid, PidfdFlags::empty()) {
            host::signals::wait(&[gone.as_raw_fd()], TO_DIE);
        }
        reap(self.pid);
    }
}

/// Looks whether a helper was given up because it waited itself and did not wake, not because it took too long.
pub fn is_silence(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ETIME)
}

/// Time until `deadline`.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn run(
    socket: &UnixStream,
    role: &Role,
    parent: Pid,
    serve: impl FnOnce(&UnixStream) -> io::Result<()>,
) -> ! {
    std::panic::set_hook(Box::new(|_| ()));
    // A panic must not unwind into what belongs to the parent.
    let served = catch_unwind(AssertUnwindSafe(|| serve(&settle(socket, role, parent)?)));
    let status = libc::c_int::from(!matches!(served, Ok(Ok(()))));
    // SAFETY: ends the process without running what the parent registered to run at its own end.
    unsafe { libc::_exit(status) }
}

/// Gives the socket under a number that stays.
fn settle(socket: &UnixStream, role: &Role, parent: Pid) -> io::Result<UnixStream> {
    // SAFETY: plain numbers; the handlers that the fork inherited are the tool's; a helper ends with its socket.
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
    be_named(role.name);
    limit(Resource::Core, 0)?;
    let socket = keep_descriptors(socket)?;
    drop_shared_memory();
    confine(role)?;
    Ok(socket)
}

/// Takes away what the role does not need.
fn confine(role: &Role) -> io::Result<()> {
    if let Some(most) = role.heap {
        // Memory that could be had without swapping.
        let available = procs::memory()("MemAvailable:").unwrap_or(0);
        let heap = (available / 2).clamp(MIN_HEAP, most);
        // Counted at present: the parent's heap.
        let data = procs::bytes(&procs::own_status(), "VmData:").unwrap_or(0);
        limit(Resource::Data, data.saturating_add(heap))?;
        // Should memory run out all the same, this process is the one to go.
        let _ = fs::write("/proc/self/oom_score_adj", "1000");
    }
    if !role.sees_files {
        // Its capabilities alone have to do if this is refused.
        let _ = chroot(c"/proc/self").and_then(|()| chdir(c"/"));
    }
    keep_only(role.keeps)
}

fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Directory in which a helper finds open descriptors.
pub fn own_descriptors() -> &'static Path {
    let ordinary = Path::new("/proc/self/fd");
    if ordinary.exists() {
        ordinary
    } else {
        Path::new("/fd")
    }
}

/// The socket, nothing behind the standard descriptors, and nothing else.
fn keep_descriptors(socket: &UnixStream) -> io::Result<UnixStream> {
    let null = File::options().read(true).write(true).open("/dev/null");
    let nothing = null.or_else(|_| descriptors::memory(c"nothing"))?;
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
