//! Other processes' pages, read by a process of our own.
//!
//! A page may belong to a file on a file system that never answers, and whoever faults it in cannot be killed, not even to
//! end. So the reading process (see `child`) does the waiting. A process whose memory was waited for as long as `PATIENCE` in
//! all is not read any more in this run; once `MAX_WAITED` is used up, none is.

mod child;
mod kept;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, Serializer};

pub use kept::Kept;

use crate::helper::{Helper, READS_MEMORY};
use crate::wire;

/// For one process's memory.
const PATIENCE: Duration = Duration::from_secs(1);
/// For the memory of all.
const MAX_WAITED: Duration = Duration::from_secs(8);
/// Bytes that are read at once: most stacks of sleeping threads from their end on. Architecture: the smallest page, so that
/// not more than one is touched beyond what was asked for.
pub const BLOCK: usize = 4096;

/// Pieces that are asked for in one message: to switch to the reading process and back takes longer than to read them.
const MOST_AT_ONCE: usize = 16;

/// Bytes of an answer: blocks with two numbers each, and two numbers.
const MAX_ANSWER: usize = MOST_AT_ONCE * (BLOCK + 16) + 16;

thread_local! {
    static PAGES: RefCell<Pages> = RefCell::default();
}

/// Reads memory of the process `tgid` at `address`, at most a [`BLOCK`]; returns how many bytes there were.
///
/// # Errors
///
/// When the kernel does not let us, nothing lies there, or it has not answered in time.
pub fn read(tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    PAGES.with_borrow_mut(|pages| pages.read(tgid, address, buffer))
}

/// Reads whole blocks, at most [`MOST_AT_ONCE`], and hands out those that there are by their numbers.
fn read_blocks(tgid: u32, starts: &[u64], mut take: impl FnMut(usize, &[u8])) -> io::Result<()> {
    let pieces: Vec<Piece> = starts.iter().map(|start| (*start, BLOCK)).collect();
    PAGES.with_borrow_mut(|pages| {
        pages.read_all(tgid, pieces, |number, read| {
            read.map(|bytes| take(number, bytes)).unwrap_or_default();
        })
    })
}

/// Questions that the reading process has been asked.
#[cfg(test)]
fn asked() -> u64 {
    PAGES.with_borrow(|pages| pages.asked)
}

/// How many processes were not read because their memory did not answer.
pub fn given_up() -> u64 {
    PAGES.with_borrow(|pages| pages.given_up.len() as u64)
}

/// The reading process, if there is one, and what became of those before.
#[derive(Default)]
struct Pages {
    process: Option<Helper>,
    /// How long the memory of each process was waited for.
    waited: HashMap<u32, Duration>,
    waited_in_all: Duration,
    given_up: HashSet<u32>,
    #[cfg(test)]
    asked: u64,
}

impl Pages {
    fn read(&mut self, tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = (address, buffer.len().min(BLOCK));
        let mut length = Ok(0);
        self.read_all(tgid, vec![piece], |_, read| {
            length = read.map(|bytes| {
                buffer[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            });
        })?;
        length
    }

    /// Reads pieces, and hands out what became of each by its number.
    fn read_all(
        &mut self,
        tgid: u32,
        pieces: Vec<Piece>,
        take: impl FnMut(usize, io::Result<&[u8]>),
    ) -> io::Result<()> {
        let patience = self.patience(tgid);
        if patience.is_zero() || self.given_up.contains(&tgid) {
            self.given_up.insert(tgid);
            return Err(io::ErrorKind::TimedOut.into());
        }
        let process = Helper::take_or_start(&mut self.process, &READS_MEMORY, child::serve)?;
        let began = Instant::now();
        #[cfg(test)]
        {
            self.asked += 1;
        }
        match ask(&process, patience, &Question { tgid, pieces }, take) {
            Ok(was_awaited) => {
                self.process = Some(process);
                if was_awaited {
                    self.count(tgid, began.elapsed());
                }
                Ok(())
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

/// An address, and how many bytes are asked for there: at most a [`BLOCK`].
type Piece = (u64, usize);

/// Bytes that are asked for.
#[derive(Deserialize, Serialize)]
struct Question {
    tgid: u32,
    #[serde(deserialize_with = "wire::at_most::<_, _, MOST_AT_ONCE>")]
    pieces: Vec<Piece>,
}

/// What the reading process says.
#[derive(Deserialize, Serialize)]
struct Answer<'a> {
    /// The bytes that there were, or an errno, of each piece.
    #[serde(borrow, deserialize_with = "wire::at_most::<_, _, MOST_AT_ONCE>")]
    read: Vec<Result<Bytes<'a>, i32>>,
    /// Whether it slept meanwhile, as for a page that has to come from somewhere.
    was_awaited: bool,
}

/// Bytes that are copied as a whole; a list goes entry by entry, 40 µs a block in debug builds.
#[derive(Deserialize, Serialize)]
struct Bytes<'a>(#[serde(serialize_with = "whole")] &'a [u8]);

fn whole<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Asks, and hands out what was read; gives whether it was waited for. The error means that the process is of no use any more.
fn ask(
    process: &Helper,
    patience: Duration,
    question: &Question,
    mut take: impl FnMut(usize, io::Result<&[u8]>),
) -> io::Result<bool> {
    process.ask(question, None)?;
    let message = process.hear(patience, MAX_ANSWER, false)?;
    let Answer { read, was_awaited } = message.read()?;
    let is_longer = |(read, piece): (&Result<Bytes<'_>, i32>, &Piece)| {
        read.as_ref()
            .is_ok_and(|Bytes(bytes)| bytes.len() > piece.1)
    };
    if read.len() != question.pieces.len() || read.iter().zip(&question.pieces).any(is_longer) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    for (number, read) in read.into_iter().enumerate() {
        let read = read.map(|Bytes(bytes)| bytes);
        take(number, read.map_err(io::Error::from_raw_os_error));
    }
    Ok(was_awaited)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use host::privileges::{self, Capabilities};

    /// The test's own process, which the reading one may look into.
    fn own() -> u32 {
        // Only where none but a process's ancestors may look into it does it do anything.
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
        std::process::id()
    }

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
        assert_eq!(rights & !Capabilities::SYS_PTRACE.bits(), 0, "{status}");
        let root = std::fs::read_link(format!("{process}/root")).unwrap();
        let may_shut_in = privileges::effective().contains(Capabilities::SYS_CHROOT);
        assert!(root.as_os_str() == &*process || !may_shut_in, "{root:?}");
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
            process: Helper::start(&READS_MEMORY, |mut socket| {
                socket.read_to_end(&mut Vec::new()).map(drop)
            })
            .ok(),
            waited: HashMap::from([(1, PATIENCE - Duration::from_millis(20))]),
            ..Pages::default()
        };
        let mut word = [0; 8];
        let refused = pages.read(1, 0, &mut word).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
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
