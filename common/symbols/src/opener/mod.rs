//! Opens files on file systems that need not ever answer: one that a stopped program serves (FUSE), a dead server's (NFS).
//!
//! Whoever waits for such a file system cannot be killed, so a process of its own does the waiting (see `child`). It hands
//! over what lies on this machine's own file systems as it is; a copy in memory of everything else, because reading may hang
//! as well as opening, and so may closing. One that does not answer within [`PATIENCE`] is given up and not asked again.

mod child;
mod facts;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use foreign::helper::{Helper, OPENS_FILES};
use serde::{Deserialize, Serialize};

use facts::identity;
pub(super) use facts::{Facts, known_of};

/// For a sign of life: the next step, or the next MiB of a copy.
const PATIENCE: Duration = Duration::from_secs(1);
/// Files given up in vain, each of which cost so much; then no more are opened.
const MAX_HANGS: u32 = 8;
/// Bytes of a path, by the kernel's PATH_MAX; it refuses one that has so many.
const MAX_PATH: usize = 4096;
/// Bytes of an answer: the facts of a file.
const MAX_ANSWER: usize = 128;
/// All copies together.
const MAX_COPIES: u64 = 512 << 20;
/// Time that making them may take in a run.
const MAX_COPYING: Duration = Duration::from_secs(10);

/// A file of somebody else's.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What can be read without waiting for anybody.
    pub(crate) file: File,
    /// About the file itself, also where `file` is a copy.
    pub(super) facts: Facts,
}

/// Which file.
pub(super) struct Wanted<'a> {
    /// Where an absolute path begins; `None`: where ours does, links of `/proc` followed.
    pub(super) root: Option<BorrowedFd<'a>>,
    pub(super) path: &'a [u8],
    /// Whether it may be a symbolic link itself.
    pub(super) follow: bool,
}

/// Which file; the descriptor of its root comes along, if it has one.
#[derive(Deserialize, Serialize)]
struct Question<'a> {
    follow: bool,
    /// Bytes that may be copied.
    limit: u64,
    /// Devices not to be touched.
    avoid: Vec<u64>,
    path: &'a [u8],
}

/// One message of several to a question.
#[derive(Deserialize, Serialize)]
enum Answer {
    /// It lies on this device, and what comes next may take for ever.
    Found(u64),
    /// A file system of this machine.
    Local,
    /// Another piece was copied.
    Goes,
    /// The last one: errno.
    Refused(i32),
    /// The last one: the file comes along.
    File(Facts),
}

thread_local! {
    static OPENER: RefCell<Opener> = RefCell::default();
}

/// Opens a regular file.
///
/// # Errors
///
/// `TimedOut` when it does not answer, now or before; those of opening it; `InvalidInput` when it is no regular file;
/// `FileTooLarge` when it cannot be copied.
pub(super) fn open(wanted: &Wanted<'_>) -> io::Result<Opened> {
    OPENER.with_borrow_mut(|opener| opener.open(wanted))
}

/// How many times nobody answered.
pub(super) fn hangs() -> u64 {
    OPENER.with_borrow(|opener| opener.hangs.into())
}

/// The opening process, if there is one, and what became of those before.
#[derive(Default)]
struct Opener {
    process: Option<Helper>,
    hangs: u32,
    /// Devices that did not answer.
    devices: Vec<u64>,
    /// Directories, by device and inode of the root, in which a look-up was not answered.
    directories: HashSet<(u64, u64, Vec<u8>)>,
    copied: u64,
    copying: Duration,
}

impl Opener {
    fn open(&mut self, wanted: &Wanted<'_>) -> io::Result<Opened> {
        let directory = directory(wanted);
        if self.hangs >= MAX_HANGS || self.directories.contains(&directory) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let process = Helper::take_or_start(&mut self.process, &OPENS_FILES, child::serve)?;
        let limit = match self.copying < MAX_COPYING {
            true => MAX_COPIES - self.copied,
            false => 0,
        };
        let question = Question {
            follow: wanted.follow,
            limit,
            avoid: self.devices.clone(),
            path: &wanted.path[..wanted.path.len().min(MAX_PATH)],
        };
        let mut device = None;
        let most = MAX_COPYING.saturating_sub(self.copying).max(PATIENCE);
        match ask(&process, &question, wanted.root, (most, &mut device)) {
            Ok((answer, copying)) => {
                self.process = Some(process);
                self.copying += copying;
                if let Ok(opened) = &answer
                    && opened.facts.copied
                {
                    // The copy is ours; what the file's server said of the original may be anything.
                    let held = opened.file.metadata().map_or(limit, |copy| copy.len());
                    self.copied += held.min(limit);
                }
                answer
            }
            Err(error) => {
                self.hangs += 1;
                match device {
                    Some(device) => self.devices.push(device),
                    None => drop(self.directories.insert(directory)),
                }
                Err(error)
            }
        }
    }
}

/// Asks; the outer error means that the process is of no use any more, as after a copy that took longer than `most`. `device`
/// becomes that which may be the cause.
fn ask(
    process: &Helper,
    question: &Question<'_>,
    root: Option<BorrowedFd<'_>>,
    (most, device): (Duration, &mut Option<u64>),
) -> io::Result<(io::Result<Opened>, Duration)> {
    process.ask(question, root)?;
    let began = Instant::now();
    loop {
        let message = process.hear(PATIENCE, MAX_ANSWER, true)?;
        match message.read()? {
            Answer::Found(found) => *device = Some(found),
            // A disk of this machine that is slow is no reason to leave it alone.
            Answer::Local => *device = None,
            Answer::Goes if began.elapsed() > most => return Err(io::ErrorKind::TimedOut.into()),
            Answer::Goes => {}
            Answer::Refused(error) => {
                return Ok((Err(io::Error::from_raw_os_error(error)), began.elapsed()));
            }
            Answer::File(facts) => {
                // The kernel hands over a message without its descriptor where we may have no more.
                let Some(file) = message.file else {
                    let error = io::Error::from_raw_os_error(libc::EMFILE);
                    return Ok((Err(error), began.elapsed()));
                };
                let copying = if facts.copied {
                    began.elapsed()
                } else {
                    Duration::ZERO
                };
                return Ok((Ok(Opened { file, facts }), copying));
            }
        }
    }
}

/// Where it is looked up.
fn directory(wanted: &Wanted<'_>) -> (u64, u64, Vec<u8>) {
    let (device, inode) = wanted.root.map_or(Ok((0, 0)), identity).unwrap_or((0, 0));
    let end = wanted
        .path
        .iter()
        .rposition(|&byte| byte == b'/')
        .unwrap_or(0);
    (device, inode, wanted.path[..end].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreign::wire;

    #[test]
    fn an_answer_without_its_file_is_no_hang() {
        // As the opening process looks to a tool that may have no more descriptors.
        let process = Helper::start(&OPENS_FILES, |socket| {
            while wire::next(socket, true)?.is_some() {
                wire::send(socket, &Answer::Found(1), None)?;
                wire::send(socket, &Answer::File(Facts::default()), None)?;
            }
            Ok(())
        });
        let mut opener = Opener {
            process: Some(process.unwrap()),
            ..Opener::default()
        };
        for _ in 0..=MAX_HANGS {
            let opened = opener.open(&Wanted {
                root: None,
                path: b"/proc/self/exe",
                follow: true,
            });
            assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EMFILE));
        }
        assert_eq!((opener.hangs, opener.devices.len()), (0, 0));
        assert!(opener.process.is_some());
    }
}
