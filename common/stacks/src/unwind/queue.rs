//! Files that wait for a table, and whose turn it is.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of a file whose table may take a tenth of a second and more: browsers, compilers, what has all its debug information.
const LONG: u64 = 8 << 20;

/// Every so many turns the oldest job is begun, whatever comes anew: nobody's files may keep another's waiting for ever.
const OLDEST_EVERY: u64 = 8;

/// A file to make a table of.
pub(super) struct Job {
    /// The symbolizer's number; `None`: nobody maps the file yet.
    pub(super) module: Option<u32>,
    pub(super) file: File,
}

/// A job that was begun.
pub(super) struct Turn {
    pub(super) job: Job,
    is_wanted: bool,
    pub(super) is_long: bool,
}

/// Jobs that no thread has begun. Those come first whose code was seen in a stack: what runs on a busy machine is a small part of what is
/// mapped. Of the rest, short ones come before long ones, for they hold up nobody, and of these the last: who maps a file now is sampled
/// now. The C library, which everybody maps, is always among the last.
pub(super) struct Queue {
    jobs: Mutex<Pending>,
    more: Condvar,
}

/// The highest is next: wanted jobs are above others, short ones above long ones, and newer above older.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_wanted: bool,
    is_short: bool,
    order: u64,
}

#[derive(Default)]
struct Pending {
    jobs: BTreeMap<Rank, Job>,
    ranks: HashMap<u32, Rank>,
    /// Of the next job.
    order: u64,
    turns: u64,
    /// Long ones that may be begun now: never as many as there are threads, if there is more than one.
    long_allowed: usize,
    closed: bool,
}

impl Pending {
    fn put(&mut self, job: Job, is_wanted: bool, is_short: bool) {
        let rank = Rank {
            is_wanted,
            is_short,
            order: self.order,
        };
        self.order += 1;
        if let Some(module) = job.module {
            self.ranks.insert(module, rank);
        }
        self.jobs.insert(rank, job);
    }

    /// Those that may be begun, the lowest first.
    fn allowed(&self) -> impl DoubleEndedIterator<Item = Rank> {
        let may_begin = |rank: &Rank| rank.is_short || self.long_allowed > 0;
        self.jobs.keys().copied().filter(may_begin)
    }

    /// Puts a job that is there above all others of its kind.
    fn raise(&mut self, module: u32, is_wanted: bool) {
        if let Some(rank) = self.ranks.get(&module).copied()
            && let Some(job) = self.jobs.remove(&rank)
        {
            self.put(job, rank.is_wanted || is_wanted, rank.is_short);
        }
    }

    fn take(&mut self) -> Option<Turn> {
        self.turns += 1;
        let rank = if self.turns.is_multiple_of(OLDEST_EVERY) {
            self.allowed().min_by_key(|rank| rank.order)
        } else {
            self.allowed().next_back()
        }?;
        let job = self.jobs.remove(&rank)?;
        if let Some(module) = job.module {
            self.ranks.remove(&module);
        }
        self.long_allowed -= usize::from(!rank.is_short);
        Some(Turn {
            job,
            is_wanted: rank.is_wanted,
            is_long: !rank.is_short,
        })
    }
}

impl Queue {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Self {
        let pending = Pending {
            long_allowed: threads.saturating_sub(1).max(1),
            ..Pending::default()
        };
        Self {
            jobs: Mutex::new(pending),
            more: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job.
    pub(super) fn put(&self, job: Job) {
        let is_short = job.file.metadata().is_ok_and(|file| file.len() < LONG);
        self.lock().put(job, false, is_short);
        self.more.notify_one();
    }

    /// Makes a job the next one of its kind, if nobody has begun it.
    pub(super) fn hurry(&self, module: u32) {
        self.lock().raise(module, false);
    }

    /// The same, and before all that no stack was seen in.
    pub(super) fn want(&self, module: u32) {
        self.lock().raise(module, true);
    }

    /// Waits for a job; `None` when there will be none.
    pub(super) fn next(&self) -> Option<Turn> {
        let waiting = |pending: &mut Pending| !pending.closed && pending.allowed().next().is_none();
        let pending = self.more.wait_while(self.lock(), waiting);
        let mut pending = pending.unwrap_or_else(PoisonError::into_inner);
        if pending.closed {
            return None;
        }
        pending.take()
    }

    /// To be called when a job is done.
    pub(super) fn end(&self, turn: Turn) -> Job {
        if turn.is_long {
            self.lock().long_allowed += 1;
            self.more.notify_one();
        }
        turn.job
    }

    /// A job that looked short and is not has to wait like others.
    pub(super) fn put_back(&self, turn: Turn) {
        self.lock().put(turn.job, turn.is_wanted, false);
        self.more.notify_one();
    }

    /// Nothing is begun any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_all();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(module: u32, bytes: u64) -> Job {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        Job {
            module: Some(module),
            file,
        }
    }

    fn next(queue: &Queue) -> (Option<u32>, Turn) {
        let turn = queue.next().unwrap();
        (turn.job.module, turn)
    }

    fn may_begin(queue: &Queue) -> bool {
        queue.lock().allowed().next().is_some()
    }

    #[test]
    fn jobs_that_stacks_want_come_before_all_others() {
        let queue = Queue::new(2);
        for (module, bytes) in [(1, LONG), (2, 10), (3, 10), (4, LONG)] {
            queue.put(job(module, bytes));
        }
        queue.want(2);
        queue.want(1);
        queue.put(job(5, 10));
        // Being mapped once more takes nothing from it.
        queue.hurry(2);
        assert_eq!(next(&queue).0, Some(2));
        let (module, long) = next(&queue);
        assert_eq!(module, Some(1));
        queue.want(4);
        assert_eq!(next(&queue).0, Some(5), "one thread is left");
        queue.end(long);
        assert_eq!(next(&queue).0, Some(4));
    }

    #[test]
    fn what_is_mapped_again_comes_next_and_what_takes_long_last() {
        let queue = Queue::new(2);
        for (module, bytes) in [(1, 10), (2, LONG), (3, 10), (4, LONG - 1), (5, LONG)] {
            queue.put(job(module, bytes));
        }
        queue.hurry(1);
        queue.hurry(2);
        queue.hurry(6);
        let order = (0..5).map(|_| {
            let (module, turn) = next(&queue);
            queue.end(turn);
            module.unwrap()
        });
        assert_eq!(order.collect::<Vec<_>>(), [1, 4, 3, 2, 5]);
        queue.close();
        assert!(queue.next().is_none());
    }

    #[test]
    fn one_thread_is_left_for_what_is_short() {
        let queue = Queue::new(2);
        queue.put(job(1, LONG));
        queue.put(job(2, LONG));
        let (_, long) = next(&queue);
        assert!(!may_begin(&queue), "the other thread waits");
        queue.put(job(3, 10));
        assert_eq!(next(&queue).0, Some(3));
        assert!(!may_begin(&queue));
        queue.end(long);
        assert_eq!(next(&queue).0, Some(1));
    }

    #[test]
    fn new_jobs_keep_no_old_one_waiting_for_ever() {
        let queue = Queue::new(2);
        queue.put(job(1, LONG));
        queue.put(job(2, 10));
        let mut begun = Vec::new();
        for newest in 3..3 + 2 * OLDEST_EVERY as u32 {
            queue.put(job(newest, 10));
            let (module, turn) = next(&queue);
            queue.end(turn);
            begun.extend(module.filter(|module| *module < 3));
        }
        assert_eq!(begun, [1, 2]);
    }

    #[test]
    fn what_only_looked_short_is_begun_as_a_long_one() {
        let queue = Queue::new(2);
        queue.put(job(1, 10));
        let (_, turn) = next(&queue);
        assert!(!turn.is_long);
        queue.put_back(turn);
        queue.put(job(2, 10));
        assert_eq!(next(&queue).0, Some(2));
        let (module, turn) = next(&queue);
        assert!(module == Some(1) && turn.is_long);
    }

    #[test]
    fn a_thread_alone_makes_everything() {
        let queue = Queue::new(1);
        queue.put(job(1, LONG));
        assert_eq!(next(&queue).0, Some(1));
    }
}
