//! Makes tables beside the collection: a large program takes a second, in which rings must be read and files opened.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;
use std::{io, num::NonZero};

use host::privileges::{self, Capabilities};
use host::scheduling;
use rustix::event::{EventfdFlags, eventfd};
use unwind::{Error, Image, Table};

use super::outside::native;
use super::queue::{Job, Queue};

/// More would only fight for memory bandwidth with what is being traced.
const MOST_THREADS: usize = 4;
/// Bytes of call frame information that each thread may hold; of files with more there is one at a time. Few have as much: a browser
/// has 30 MiB, the compiler of Rust 10.
const LARGE: u64 = 16 << 20;

/// What became of it.
pub(super) struct Made {
    /// As it was given.
    pub(super) module: Option<u32>,
    pub(super) file: File,
    pub(super) outcome: Outcome,
}

/// A table, or why there is none.
pub(super) enum Outcome {
    /// The file has more call frame information than its length says, and waits for its turn; nobody is told.
    Later,
    /// No call frame information for this machine: JIT code in a memfd, a 32-bit library.
    Nothing,
    /// The file contradicts itself.
    Broken,
    /// By the file's content; `None`: that one is known.
    Table(Box<Image>, u128, Option<Box<Table>>),
}

/// Contents whose tables are stored.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<HashSet<u128>>>);

impl Known {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that make tables.
pub(super) struct Maker {
    queue: Arc<Queue>,
    /// Held by who makes a table of a file with much call frame information.
    large: Arc<Mutex<()>>,
    done: SyncSender<Made>,
    results: Receiver<Made>,
    /// Becomes readable with every result.
    ready: Arc<OwnedFd>,
    /// Jobs whose results have not been taken.
    open: usize,
    /// That many may be, and as many again for code that runs: each holds a descriptor.
    most: usize,
}

impl Maker {
    /// Nothing is made before [`Maker::start`]; of at most `most` files at a time, and as many that stacks want.
    pub(super) fn new(most: usize) -> io::Result<Self> {
        // Threads wait with what they have made: tables have up to 64 MiB.
        let (done, results) = mpsc::sync_channel(MOST_THREADS);
        Ok(Self {
            queue: Arc::new(Queue::new(threads())),
            large: Arc::default(),
            done,
            results,
            ready: Arc::new(event_fd()?),
            open: 0,
            most,
        })
    }

    /// Starts the threads; they end with what they are at when this is dropped.
    pub(super) fn start(&self, known: &Known) -> io::Result<()> {
        for _ in 0..threads() {
            let (queue, done) = (Arc::clone(&self.queue), self.done.clone());
            let large = Arc::clone(&self.large);
            let (ready, known) = (Arc::clone(&self.ready), known.clone());
            thread::Builder::new()
                .name("unwind-tables".into())
                .spawn(move || {
                    scheduling::watch_thread();
                    // Reads open files only. Where this is refused, it does not matter to the tables.
                    let _ = privileges::keep_only(Capabilities::empty());
                    while let Some(turn) = queue.next() {
                        // The reader is made for hostile files; should it fail all the same, one table is missing.
                        let large = turn.is_long.then_some(&*large);
                        let outcome =
                            catch_unwind(AssertUnwindSafe(|| make(&turn.job.file, &known, large)));
                        if matches!(outcome, Ok(Outcome::Later)) {
                            queue.put_back(turn);
                            continue;
                        }
                        let Job { module, file } = queue.end(turn);
                        let made = Made {
                            module,
                            file,
                            outcome: outcome.unwrap_or(Outcome::Broken),
                        };
                        if done.send(made).is_err() {
                            return;
                        }
                        notify(&ready);
                    }
                })?;
        }
        Ok(())
    }

    /// Readable when there are results.
    pub(super) fn fd(&self) -> i32 {
        self.ready.as_raw_fd()
    }

    /// Files that were ordered and have not come back.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Tells if a file may be ordered.
    pub(super) fn has_room(&self) -> bool {
        self.open < self.most
    }

    /// Tells if a file may be ordered whose code was seen in a stack.
    pub(super) fn has_reserve(&self) -> bool {
        self.open < 2 * self.most
    }

    /// Tells if many may: half of what was ordered is made.
    pub(super) fn has_much_room(&self) -> bool {
        self.open <= self.most / 2
    }

    /// Has a table made; where there is no room, the file is closed and never comes back.
    pub(super) fn order(&mut self, module: Option<u32>, file: File) {
        if !self.has_reserve() {
            return;
        }
        self.queue.put(Job { module, file });
        self.open += 1;
    }

    /// Another process maps a file that was ordered.
    pub(super) fn hurry(&self, module: u32) {
        self.queue.hurry(module);
    }

    /// Code was seen in a stack whose table was ordered.
    pub(super) fn want(&self, module: u32) {
        self.queue.want(module);
    }

    /// A result that is there already.
    pub(super) fn take(&mut self) -> Option<Made> {
        drain(&self.ready);
        let made = self.results.try_recv().ok()?;
        self.open -= 1;
        Some(made)
    }

    /// The next result; `None` when nothing is being made, or it is not there in time.
    pub(super) fn wait(&mut self, deadline: Instant) -> Option<Made> {
        if self.open == 0 {
            return None;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let made = self.results.recv_timeout(left).ok()?;
        self.open -= 1;
        Some(made)
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn threads() -> usize {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    cpus.min(MOST_THREADS)
}

/// A file that was read, and the right to be at a large one.
type Read<'a> = (Result<Image, Error>, Option<MutexGuard<'a, ()>>);

/// Reads a file; of a large one with the right to be the only one until its table is made. `None`: without such a right.
fn read<'a>(file: &File, large: Option<&'a Mutex<()>>) -> Option<Read<'a>> {
    match Image::read_within(file, LARGE) {
        Err(Error::TooLarge(_)) => {
            let turn = large?.lock().unwrap_or_else(PoisonError::into_inner);
            Some((Image::read(file), Some(turn)))
        }
        image => Some((image, None)),
    }
}

fn make(file: &File, known: &Known, large: Option<&Mutex<()>>) -> Outcome {
    let Some((image, _turn)) = read(file, large) else {
        return Outcome::Later;
    };
    let mut image = match image {
        Ok(image) if image.has_cfi() && image.architecture() == native() => image,
        Ok(_) | Err(Error::NotElf | Error::OtherMachine) => return Outcome::Nothing,
        Err(_) => return Outcome::Broken,
    };
    let key = image.content_key();
    let table = if known.lock().contains(&key) {
        None
    } else {
        match image.table() {
            Ok((table, _)) => Some(Box::new(table)),
            Err(_) => return Outcome::Broken,
        }
    };
    image.forget_cfi();
    Outcome::Table(Box::new(image), key, table)
}

fn event_fd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn notify(ready: &OwnedFd) {
    // It fails only when so many are unread that nobody could miss them.
    let _ = rustix::io::write(ready, &1_u64.to_ne_bytes());
}

fn drain(ready: &OwnedFd) {
    // It fails when there is nothing to read.
    let _ = rustix::io::read(ready, &mut [0_u8; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    #[test]
    fn no_more_files_are_held_than_there_is_room_for() {
        let mut maker = Maker::new(8).unwrap();
        let mut ordered = 0;
        while maker.has_room() {
            maker.order(Some(ordered), File::open("/etc/passwd").unwrap());
            ordered += 1;
        }
        assert_eq!(ordered, 8);
        while maker.has_reserve() {
            maker.order(Some(ordered), File::open("/etc/passwd").unwrap());
            ordered += 1;
        }
        maker.order(Some(ordered), File::open("/etc/passwd").unwrap());
        assert_eq!((ordered, maker.queue.len()), (16, 16));
        assert!(!maker.has_much_room());
        maker.start(&Known::default()).unwrap();
        let soon = Instant::now() + Duration::from_secs(60);
        for _ in 0..12 {
            assert!(maker.wait(soon).is_some());
        }
        assert!(maker.has_room() && maker.has_much_room());
        assert_eq!((0..17).filter(|_| maker.wait(soon).is_some()).count(), 4);
    }

    #[test]
    fn results_come_for_every_order_and_known_contents_are_not_made_again() {
        let known = Known::default();
        let mut maker = Maker::new(8).unwrap();
        maker.start(&known).unwrap();
        let own = || File::open("/proc/self/exe").unwrap();
        let soon = Instant::now() + Duration::from_secs(60);
        maker.order(Some(1), own());
        let Some(Made {
            module: Some(1),
            outcome: Outcome::Table(image, key, Some(table)),
            ..
        }) = maker.wait(soon)
        else {
            panic!("this program has call frame information");
        };
        assert!(!table.rows.is_empty() && !image.has_cfi());
        known.lock().insert(key);
        maker.order(Some(2), own());
        maker.order(None, File::open("/etc/passwd").unwrap());
        let mut outcomes = [maker.wait(soon), maker.wait(soon)].map(Option::unwrap);
        outcomes.sort_by_key(|made| made.module);
        assert!(matches!(outcomes[0].outcome, Outcome::Nothing));
        assert!(matches!(outcomes[1].outcome, Outcome::Table(_, same, None) if same == key));
        assert!(maker.wait(soon).is_none() && maker.take().is_none());
    }

    #[test]
    fn of_large_files_there_is_one_at_a_time() {
        let large = Mutex::new(());
        let own = File::open("/proc/self/exe").unwrap();
        assert!(matches!(read(&own, None), Some((Ok(_), None))));
        let file = sparse(LARGE + 1);
        assert!(matches!(
            make(&file, &Known::default(), None),
            Outcome::Later
        ));
        let (image, turn) = read(&file, Some(&large)).unwrap();
        assert!(image.is_ok_and(|image| image.has_cfi()));
        assert!(turn.is_some() && large.try_lock().is_err());
        drop(turn);
        assert!(matches!(
            make(&file, &Known::default(), Some(&large)),
            Outcome::Table(..)
        ));
        assert!(large.try_lock().is_ok(), "the next one's turn");
    }

    /// A file with nothing but `.eh_frame` of so many zeros.
    fn sparse(size: u64) -> File {
        let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
        let mut put = |words: &[u64]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
        // No segments and three sections, the names of which are in the last.
        put(&[0, 0, 64, 64 << 32, 64 << 16 | 3 << 32 | 2 << 48]);
        put(&[0; 8]);
        put(&[1 | 1 << 32, 2, 0, 512, size, 0, 8, 0]);
        put(&[11 | 3 << 32, 0, 0, 256, 21, 0, 1, 0]);
        out.extend(b"\0.eh_frame\0.shstrtab\0");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&out).unwrap();
        file.set_len(512 + size).unwrap();
        file
    }
}
