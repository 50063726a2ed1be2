//! Which words of the space are in use.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A BPF program that was at it when words were given up is done with them by then.
const GRACE: Duration = Duration::from_secs(1);
/// Everything is a multiple of it: a list's mapping has eight words and must not cross a chunk's border.
pub(super) const ALIGNMENT: u32 = 8;

/// A run of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) at: u32,
    pub(super) words: u32,
}

/// First fit over one space of words.
#[derive(Debug)]
pub(super) struct FreeList {
    /// Start → length, never adjacent.
    free: BTreeMap<u32, u32>,
    /// Given up, but perhaps still being read.
    retired: VecDeque<(Instant, Run)>,
    chunk_words: u32,
}

impl FreeList {
    /// A space of `chunks` × `chunk_words` words. The first few stay unused: 0 means nothing.
    pub(super) fn new(chunks: u32, chunk_words: u32) -> Self {
        let all = (chunks * chunk_words) - ALIGNMENT;
        Self {
            free: BTreeMap::from([(ALIGNMENT, all)]),
            retired: VecDeque::new(),
            chunk_words,
        }
    }

    /// Takes `words` words; `None` when there is no such run. `in_one_chunk`: it must not cross a border.
    pub(super) fn take(&mut self, words: u32, in_one_chunk: bool) -> Option<Run> {
        let words = words.max(1).checked_next_multiple_of(ALIGNMENT)?;
        if in_one_chunk && words > self.chunk_words {
            return None;
        }
        let fits = |(&start, &length): (&u32, &u32)| {
            let offset = start % self.chunk_words;
            let skip = if in_one_chunk && offset + words > self.chunk_words {
                self.chunk_words - offset
            } else {
                0
            };
            (length >= skip && length - skip >= words).then_some((start, length, skip))
        };
        let (start, length, skip) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        if skip > 0 {
            self.free.insert(start, skip);
        }
        if length > skip + words {
            self.free
                .insert(start + skip + words, length - skip - words);
        }
        Some(Run {
            at: start + skip,
            words,
        })
    }

    /// Gives a run up; it is used again after a while.
    pub(super) fn retire(&mut self, run: Run, now: Instant) {
        self.retired.push_back((now, run));
    }

    /// Makes what was given up long enough ago usable. Returns whether there was any.
    pub(super) fn reclaim(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(&(since, run)) = self.retired.front() {
            if now.duration_since(since) < GRACE {
                break;
            }
            self.retired.pop_front();
            self.put_back(run);
            any = true;
        }
        any
    }

    /// Whether nothing in a chunk is in use.
    pub(super) fn is_chunk_free(&self, chunk: u32) -> bool {
        let start = chunk * self.chunk_words;
        // The first chunk lacks its first words.
        let first = start.max(ALIGNMENT);
        let holds = self.free.range(..=first).next_back();
        holds.is_some_and(|(&at, &length)| at + length >= start + self.chunk_words)
    }

    fn put_back(&mut self, run: Run) {
        let Run { mut at, mut words } = run;
        if let Some(after) = self.free.remove(&(at + words)) {
            words += after;
        }
        let before = self.free.range(..at).next_back();
        if let Some((&start, &length)) = before.filter(|(start, length)| **start + **length == at) {
            at = start;
            words += length;
        }
        self.free.insert(at, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_overlap_nor_cross_borders_when_asked() {
        let mut list = FreeList::new(3, 64);
        let first = list.take(40, true).unwrap();
        assert_eq!((first.at, first.words), (8, 40));
        let second = list.take(30, true).unwrap();
        assert_eq!((second.at, second.words), (64, 32), "not across word 64");
        let third = list.take(9, true).unwrap();
        assert_eq!((third.at, third.words), (48, 16), "the hole is used");
        let across = list.take(40, false).unwrap();
        assert_eq!((across.at, across.words), (96, 40));
        assert_eq!(list.take(64, true), None);
        assert_eq!(list.take(65, true), None);
        assert!(list.take(56, false).is_some());
        assert_eq!(list.take(1, false), None);
    }

    #[test]
    fn what_is_given_up_comes_back_later_and_whole() {
        let mut list = FreeList::new(2, 64);
        let start = Instant::now();
        let runs: Vec<Run> = (0..7).map(|_| list.take(16, true).unwrap()).collect();
        assert!(list.take(16, true).is_none());
        for run in [runs[1], runs[0], runs[2]] {
            list.retire(run, start);
        }
        assert!(!list.reclaim(start + GRACE / 2));
        assert!(list.take(8, true).is_some(), "the first chunk's last words");
        assert!(list.take(40, true).is_none());
        assert!(list.reclaim(start + GRACE));
        assert_eq!(list.take(48, true).map(|run| run.at), Some(8));
    }

    #[test]
    fn an_empty_chunk_is_known_to_be_empty() {
        let mut list = FreeList::new(2, 64);
        assert!(list.is_chunk_free(0) && list.is_chunk_free(1));
        let run = list.take(64, false).unwrap();
        assert!(!list.is_chunk_free(0) && !list.is_chunk_free(1));
        list.put_back(run);
        assert!(list.is_chunk_free(0) && list.is_chunk_free(1));
    }
}
