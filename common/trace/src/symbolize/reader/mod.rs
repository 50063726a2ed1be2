//! Asks a process of its own for the names in other people's files.
//!
//! The libraries for ELF, DWARF and compressed sections are made for honest files. They map a file whose owner may cut it
//! short (SIGBUS), recurse as deep as its debug information is nested (stack overflow), unpack what claims to be small,
//! follow names in it. None of that can be caught in the process in which it happens. Here it happens in one that has
//! nothing to lose (see `child`): if it dies, or takes too long, that file is refused, and the next process goes on.
//!
//! Who makes it die pays: after a second time that owner's files are not read any more in this run, and after [`MAX_LOST`]
//! in all only those are that nobody but root can have written.

mod child;
mod passing;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::elfnames::Functions;
use child::Terms;
use wire::{Answer, MAX_ADDRESSES, MAX_ANSWER, PREFIX, Question};

/// For an answer: indexing the debug information of the largest programs takes some seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Deaths of the reading process that one owner's files on one file system may cause.
const MAX_DEATHS: u32 = 2;
/// As many for those that only root can have written: honest files that the libraries do not understand, most likely.
const MAX_DEATHS_OF_ROOT: u32 = 8;
/// Time that all files together may cost in vain.
const MAX_LOST: Duration = Duration::from_secs(30);
/// Heap of the reading process: compressed debug information of a browser unpacks to 3 GiB.
const MAX_HEAP: u64 = 4 << 30;
/// On a machine with little memory, at least.
const MIN_HEAP: u64 = 256 << 20;

/// Whose file, as far as the kernel knows: containers have file systems of their own, and all are root in theirs.
type Owner = (u32, u64);

/// The reading process, if there is one, and what became of those before.
pub(super) struct Reader {
    inline: bool,
    process: Option<Process>,
    deaths: HashMap<Owner, u32>,
    lost: Duration,
    /// Files whose debug information made it die.
    without_dwarf: HashSet<u64>,
    /// Files that made it die all the same, or that were not given to it because of what their owner did before.
    bad: HashSet<u64>,
}

impl Reader {
    pub(super) fn new(inline: bool) -> Self {
        Self {
            inline,
            process: None,
            deaths: HashMap::new(),
            lost: Duration::ZERO,
            without_dwarf: HashSet::new(),
            bad: HashSet::new(),
        }
    }

    /// Drops everything that was read.
    pub(super) fn reset(&mut self) {
        self.process = None;
    }

    /// Files that were refused so far.
    pub(super) fn refused(&self) -> u64 {
        self.bad.len() as u64
    }

    /// The functions at ELF virtual addresses of `file`, which is known as `id` until the next reset; `dwarf` allows to
    /// read its debug information.
    pub(super) fn resolve(
        &mut self,
        id: u64,
        file: &File,
        dwarf: bool,
        addresses: &[u64],
    ) -> Vec<Option<Functions>> {
        let mut found = Vec::with_capacity(addresses.len());
        for part in addresses.chunks(MAX_ADDRESSES) {
            let dwarf = dwarf && !self.without_dwarf.contains(&id);
            let mut answer = self.ask(id, file, dwarf, part);
            if dwarf && matches!(answer, Heard::Nothing) {
                self.without_dwarf.insert(id);
                answer = self.ask(id, file, false, part);
            }
            match answer {
                Heard::Names(names) => found.extend(names),
                Heard::Nothing | Heard::Refused => {
                    self.bad.insert(id);
                    found.extend(part.iter().map(|_| None));
                }
            }
        }
        found
    }

    fn ask(&mut self, id: u64, file: &File, dwarf: bool, addresses: &[u64]) -> Heard {
        let Ok(metadata) = file.metadata() else {
            return Heard::Refused;
        };
        let owner = (metadata.uid(), metadata.dev());
        if self.bad.contains(&id) || !self.is_admitted(owner, &metadata) {
            return Heard::Refused;
        }
        let question = Question {
            file: id,
            dwarf,
            addresses: addresses.to_vec(),
        };
        let started = self
            .process
            .take()
            .map_or_else(|| Process::start(self.inline), Ok);
        let Ok(mut process) = started else {
            return Heard::Refused;
        };
        let began = Instant::now();
        match process.ask(&question, file, began + PATIENCE) {
            Ok(answer) => {
                self.process = Some(process);
                answer.map_or(Heard::Refused, Heard::Names)
            }
            Err(_) => {
                self.lost += began.elapsed();
                *self.deaths.entry(owner).or_default() += 1;
                Heard::Nothing
            }
        }
    }

    fn is_admitted(&self, owner: Owner, metadata: &Metadata) -> bool {
        let roots = metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
        let deaths = self.deaths.get(&owner).copied().unwrap_or(0);
        if roots {
            deaths < MAX_DEATHS_OF_ROOT
        } else {
            deaths < MAX_DEATHS && self.lost < MAX_LOST
        }
    }
}

/// What came of a question.
enum Heard {
    /// One entry per address.
    Names(Vec<Option<Functions>>),
    /// The file was not read.
    Refused,
    /// The process died, or had to be killed.
    Nothing,
}

/// One reading process; killed when dropped.
struct Process {
    pid: libc::pid_t,
    socket: UnixStream,
    /// Files that it has.
    known: HashSet<u64>,
}

impl Process {
    fn start(inline: bool) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let terms = Terms {
            inline,
            // SAFETY: has no preconditions.
            parent: unsafe { libc::getpid() },
            heap: (memory_available() / 2).clamp(MIN_HEAP, MAX_HEAP),
        };
        match fork()? {
            0 => child::run(&theirs, &terms),
            pid => Ok(Self {
                pid,
                socket: ours,
                known: HashSet::new(),
            }),
        }
    }

    fn ask(&mut self, question: &Question, file: &File, deadline: Instant) -> io::Result<Answer> {
        let bytes = question.encode();
        self.socket.set_write_timeout(Some(left(deadline)?))?;
        let sent = if self.known.insert(question.file) {
            passing::send_with(&self.socket, &bytes, file)?
        } else {
            0
        };
        self.socket.write_all(&bytes[sent..])?;
        let mut length = [0; PREFIX];
        self.read(&mut length, deadline)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_ANSWER {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut answer = vec![0; length];
        self.read(&mut answer, deadline)?;
        wire::decode_answer(&answer, question.addresses.len())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn read(&mut self, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_read_timeout(Some(left(deadline)?))?;
            match self.socket.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => bytes = &mut bytes[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: our child, not reaped yet, so that the number is still its own. It is not waited for without end: the
        // file system that it may be waiting for need not ever answer.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            let fd = libc::syscall(libc::SYS_pidfd_open, self.pid, 0);
            let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0);
            let gone = fd.map(|fd| OwnedFd::from_raw_fd(fd));
            if let Some(gone) = &gone {
                crate::signals::wait(&[std::os::fd::AsRawFd::as_raw_fd(gone)], PATIENCE / 10);
            }
            libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG);
        }
    }
}

/// Forks with all signals held back until the child has put its handlers aside.
fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: sigset_t is plain memory that sigfillset fills. The child calls what is safe in the fork of a program with
    // threads: it allocates, which glibc provides for, and takes no lock that another thread may have held.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = libc::fork();
        let error = io::Error::last_os_error();
        if pid != 0 {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        if pid < 0 { Err(error) } else { Ok(pid) }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Bytes that could be had without swapping.
fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}
