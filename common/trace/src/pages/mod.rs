//! Other processes' pages, read by a process of our own.
//!
//! A page may belong to a file on a file system that never answers, and whoever faults it in cannot be killed, not even to
//! end. So the reading process (see `child`) does the waiting. A process whose memory was waited for as long as [`PATIENCE`] in
//! all is not read any more in this run; once [`MAX_WAITED`] is used up, none is.

mod child;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::forked::Forked;

/// For one process's memory.
const PATIENCE: Duration = Duration::from_secs(1);
/// For the memory of all.
const MAX_WAITED: Duration = Duration::from_secs(8);
/// Bytes that are read at once: most stacks of sleeping threads from their end on. Architecture: the smallest page, so that
/// not more than one is touched beyond what was asked for.
pub(crate) const BLOCK: usize = 4096;

/// Of a question: the process, how many bytes, and where.
const QUESTION_BYTES: usize = 16;
/// In front of the bytes of an answer: how many, or a negative errno; whether they were waited for.
const ANSWER_BYTES: usize = 8;

thread_local! {
    static PAGES: RefCell<Pages> = RefCell::default();
}

/// As [`crate::memory::read`], at most a [`BLOCK`].
pub(crate) fn read(tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    PAGES.with_borrow_mut(|pages| pages.read(tgid, address, buffer))
}

/// How many processes were not read because their memory did not answer.
pub(crate) fn given_up() -> u64 {
    PAGES.with_borrow(|pages| pages.given_up.len() as u64)
}

/// The reading process, if there is one, and what became of those before.
#[derive(Default)]
struct Pages {
    process: Option<Forked>,
    /// How long the memory of each process was waited for.
    waited: HashMap<u32, Duration>,
    waited_in_all: Duration,
    given_up: HashSet<u32>,
}

impl Pages {
    fn read(&mut self, tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let patience = self.patience(tgid);
        if patience.is_zero() || self.given_up.contains(&tgid) {
            self.given_up.insert(tgid);
            return Err(io::ErrorKind::TimedOut.into());
        }
        let started = self
            .process
            .take()
            .map_or_else(|| Forked::start(c"read-memory", child::serve), Ok);
        let mut process = started?;
        let began = Instant::now();
        match ask(&mut process, patience, (tgid, address), buffer) {
            Ok(Answer { read, was_awaited }) => {
                self.process = Some(process);
                if was_awaited {
                    self.count(tgid, began.elapsed());
                }
                read
            }
            Err(error) => {
                self.count(tgid, began.elapsed());
                self.given_up.insert(tgid);
                Err(error)
            }
        }
    }

    fn patience(&self, tgid: u32) -> Duration {
        let waited = self.waited.get(&tgid).copied().unwrap_or_default();
        let left = MAX_WAITED.saturating_sub(self.waited_in_all);
        PATIENCE.saturating_sub(waited).min(left)
    }

    fn count(&mut self, tgid: u32, waited: Duration) {
        *self.waited.entry(tgid).or_default() += waited;
        self.waited_in_all += waited;
    }
}

/// What the reading process says.
struct Answer {
    /// How many bytes there were.
    read: io::Result<usize>,
    /// Whether it slept meanwhile, as for a page that has to come from somewhere.
    was_awaited: bool,
}

/// Asks; the error means that the process is of no use any more.
fn ask(
    process: &mut Forked,
    patience: Duration,
    (tgid, address): (u32, u64),
    buffer: &mut [u8],
) -> io::Result<Answer> {
    let length = buffer.len().min(BLOCK);
    let mut question = [0; QUESTION_BYTES];
    question[..4].copy_from_slice(&tgid.to_ne_bytes());
    let length_bytes = u32::try_from(length).expect("at most a block");
    question[4..8].copy_from_slice(&length_bytes.to_ne_bytes());
    question[8..].copy_from_slice(&address.to_ne_bytes());
    // It has answered everything before: there is room for the few bytes.
    process.socket.write_all(&question)?;
    let mut message = [0; ANSWER_BYTES + BLOCK];
    let (result, was_awaited) = hear(process, patience, &mut message)?;
    let read = match usize::try_from(result) {
        Ok(bytes) if bytes <= length => {
            buffer[..bytes].copy_from_slice(&message[ANSWER_BYTES..][..bytes]);
            Ok(bytes)
        }
        Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
        Err(_) => Err(io::Error::from_raw_os_error(result.saturating_neg())),
    };
    Ok(Answer { read, was_awaited })
}

/// Takes in a whole answer; gives what stands in front.
fn hear(
    process: &mut Forked,
    patience: Duration,
    message: &mut [u8; ANSWER_BYTES + BLOCK],
) -> io::Result<(i32, bool)> {
    let mut heard = 0;
    loop {
        heard += match process.hear(patience, |socket| socket.read(&mut message[heard..]))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => more,
        };
        let half = |at: usize| {
            message[at..]
                .first_chunk()
                .map(|bytes| i32::from_ne_bytes(*bytes))
        };
        let (result, was_awaited) = (half(0).unwrap_or(0), half(4) != Some(0));
        if heard >= ANSWER_BYTES + usize::try_from(result).unwrap_or(0) {
            return Ok((result, was_awaited));
        }
    }
}

/// The test's own process, which the reading one may look into.
#[cfg(test)]
pub(crate) fn own() -> u32 {
    // SAFETY: takes plain numbers; only where none but a process's ancestors may look into it does it do anything.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::MAX, 0, 0, 0) };
    std::process::id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::Capability;

    #[test]
    fn what_is_there_is_read_up_to_where_it_ends() {
        // SAFETY: two fresh pages of our own, of which one is given back.
        let page = unsafe {
            let (rights, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let two = libc::mmap(std::ptr::null_mut(), 2 * BLOCK, rights, flags, -1, 0);
            assert_ne!(two, libc::MAP_FAILED);
            assert_eq!(libc::munmap(two.byte_add(BLOCK), BLOCK), 0);
            two as u64
        };
        let (mut pages, text) = (Pages::default(), *b"here");
        let mut read = |address, buffer: &mut [u8]| pages.read(own(), address, buffer).ok();
        let mut buffer = [1; BLOCK];
        assert_eq!(read(&raw const text as u64, &mut buffer[..4]), Some(4));
        assert_eq!(buffer[..5], *b"here\x01");
        assert_eq!(read(page + 96, &mut buffer), Some(BLOCK - 96));
        assert_eq!(buffer[..BLOCK - 96], [0; BLOCK - 96]);
        assert_eq!(read(page + 4096, &mut buffer), None);
        assert_eq!(pages.given_up.len(), 0, "it answered");
    }

    #[test]
    fn the_reading_process_may_do_nothing_else() {
        let mut pages = Pages::default();
        let _ = pages.read(own(), 0, &mut [0]);
        let process = format!("/proc/{}", pages.process.as_ref().unwrap().pid());
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let rights = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
        let rights = u64::from_str_radix(rights.unwrap().trim(), 16).unwrap();
        assert_eq!(rights & !(1 << Capability::SysPtrace as u64), 0, "{status}");
        let descriptors = std::fs::read_dir(format!("{process}/fd")).unwrap();
        assert_eq!(
            descriptors.count(),
            4,
            "three that lead nowhere and the socket"
        );
    }

    #[test]
    fn one_that_never_answers_is_asked_once() {
        let mut pages = Pages {
            process: Forked::start(c"silent", |mut socket| {
                socket.read_to_end(&mut Vec::new()).map(drop)
            })
            .ok(),
            waited: HashMap::from([(1, PATIENCE - Duration::from_millis(20))]),
            ..Pages::default()
        };
        let mut word = [0; 8];
        let refused = pages.read(1, 0, &mut word).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(pages.process.is_none(), "it is not asked again");
        let refused = pages.read(1, 0, &mut word).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        let here = 7_u64;
        let read = pages.read(own(), &raw const here as u64, &mut word);
        assert_eq!((read.ok(), u64::from_ne_bytes(word)), (Some(8), 7));
        pages.waited_in_all = MAX_WAITED;
        assert!(
            pages
                .read(own(), &raw const here as u64, &mut word)
                .is_err()
        );
        assert_eq!(pages.given_up.len(), 2);
    }
}
