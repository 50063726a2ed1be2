//! The reading process: it has no file system, hardly any rights and a bounded heap, and answers questions until its
//! socket closes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::elf;
use super::super::elfnames::ElfNames;
use super::super::minidebug::unpacks_within;
use super::passing::receive;
use super::wire::{self, Answer, MAX_QUESTION, PREFIX, Question};
use crate::privileges::{Capability, keep_only};

/// Where the socket is put.
const SOCKET: RawFd = 3;

/// How the process is to be.
pub(super) struct Terms {
    pub(super) inline: bool,
    /// Who forked it.
    pub(super) parent: libc::pid_t,
    /// Bytes of heap beyond what it inherits.
    pub(super) heap: u64,
}

/// Runs in the child, from the fork to its end. Nothing of the parent is dropped here: that is the parent's to do.
pub(super) fn run(socket: &UnixStream, terms: &Terms) -> ! {
    std::panic::set_hook(Box::new(|_| ()));
    // A panic must not unwind into what belongs to the parent.
    let served = catch_unwind(AssertUnwindSafe(|| {
        let descriptors = confine(socket.as_raw_fd(), terms).ok()?;
        // SAFETY: `confine` put the socket there and closed everything else.
        let socket = unsafe { UnixStream::from_raw_fd(SOCKET) };
        serve(socket, ElfNames::new(terms.inline), descriptors);
        Some(())
    }));
    let status = libc::c_int::from(!matches!(served, Ok(Some(()))));
    // SAFETY: ends the process without running what the parent registered to run at its own end.
    unsafe { libc::_exit(status) }
}

/// Takes away what reading does not need; returns the path under which open descriptors are found.
fn confine(socket: RawFd, terms: &Terms) -> io::Result<&'static str> {
    // SAFETY: plain numbers; the handlers that the fork inherited write into the parent's pipe and must not run.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT] {
            libc::signal(signal, libc::SIG_DFL);
        }
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        if libc::getppid() != terms.parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        libc::prctl(libc::PR_SET_NAME, c"read-names".as_ptr(), 0, 0, 0);
    }
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_DATA, own_data().saturating_add(terms.heap))?;
    // Should memory run out all the same, this process is the one to go.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    keep_descriptors(socket)?;
    // Its own directory of /proc is all that it sees: names in files lead nowhere.
    // SAFETY: valid C strings.
    let shut_in =
        unsafe { libc::chroot(c"/proc/self".as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0 };
    // Opening a descriptor again asks for the permission once more.
    keep_only(&[Capability::DacReadSearch])?;
    Ok(if shut_in { "/fd" } else { "/proc/self/fd" })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: reads one rlimit.
    check(unsafe { libc::setrlimit(resource, &raw const limit) })
}

/// Bytes that RLIMIT_DATA counts at present: the parent's heap.
fn own_data() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}

/// The socket as number 3, nothing behind the standard ones, and nothing else: BPF programs stay attached while anybody
/// has them open.
fn keep_descriptors(socket: RawFd) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null");
    let nothing = null.or_else(|_| empty_file())?;
    // Above all numbers that are given out here, else one would be closed by another.
    // SAFETY: plain numbers; the descriptors are those of this process, a fork.
    unsafe {
        let socket = libc::fcntl(socket, libc::F_DUPFD, 8);
        check(socket)?;
        let nothing = libc::fcntl(nothing.as_raw_fd(), libc::F_DUPFD, 8);
        check(nothing)?;
        for standard in 0..SOCKET {
            check(libc::dup2(nothing, standard))?;
        }
        check(libc::dup2(socket, SOCKET))?;
        let first = libc::c_uint::try_from(SOCKET + 1).expect("a small number");
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            close_from(SOCKET + 1);
        }
    }
    std::mem::forget(nothing);
    Ok(())
}

/// A system may have no /dev.
fn empty_file() -> io::Result<File> {
    // SAFETY: a valid C string.
    let descriptor = unsafe { libc::memfd_create(c"nothing".as_ptr(), libc::MFD_CLOEXEC) };
    check(descriptor)?;
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Before Linux 5.9.
fn close_from(first: RawFd) {
    let most = super::super::files::descriptor_limit().max(65_536);
    for descriptor in first..RawFd::try_from(most).unwrap_or(65_536) {
        // SAFETY: of this process, a fork, which uses none of them.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

fn serve(mut socket: UnixStream, mut names: ElfNames, descriptors: &str) {
    let mut files = HashMap::new();
    while let Some((question, file)) = hear(&mut socket) {
        if let Some(file) = file {
            let harmless = is_harmless(&file);
            files.insert(question.file, harmless.then_some(file));
        }
        let answer: Answer = files.get(&question.file).and_then(|file| {
            let path = format!("{descriptors}/{}", file.as_ref()?.as_raw_fd());
            names.resolve(&path, question.dwarf, &question.addresses)
        });
        if socket.write_all(&wire::encode_answer(&answer)).is_err() {
            return;
        }
    }
}

fn hear(socket: &mut UnixStream) -> Option<(Question, Option<File>)> {
    let mut length = [0; PREFIX];
    let file = receive(socket, &mut length).ok()?;
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    let mut question = vec![0; length.min(MAX_QUESTION)];
    socket.read_exact(&mut question).ok()?;
    Some((Question::decode(&question)?, file))
}

/// Whether `.gnu_debugdata`, if there is one, unpacks to something reasonable: the library has no limit of its own. What
/// slips through ends this process.
fn is_harmless(file: &File) -> bool {
    let Some(headers) = elf::read(file) else {
        return false;
    };
    headers
        .mini_debug
        .is_none_or(|range| unpacks_within(file, range))
}
