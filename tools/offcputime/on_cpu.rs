//! Samples of threads on CPUs, which another engine took, until the pieces of work are known that they are in.

use std::collections::{HashMap, VecDeque};

/// Most samples that are kept, of 40 bytes each: what 64 CPUs make in 40 s at 99 Hz.
const MOST: usize = 1 << 18;

/// A place where threads of a process run: the ids that the other engine has for its stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ran {
    pub(crate) tgid: u32,
    pub(crate) user: u64,
    pub(crate) kernel: u64,
}

/// A sample of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnCpu {
    pub(crate) tid: u32,
    /// `CLOCK_MONOTONIC`.
    pub(crate) time_ns: u64,
    pub(crate) ran: Ran,
}

/// Samples that no piece of work has yet.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// By process and thread, in their order.
    threads: HashMap<(u32, u32), VecDeque<(u64, Ran)>>,
    count: usize,
    /// Those that found no room.
    pub(super) homeless: u64,
}

impl Samples {
    /// Adds one; those of a thread come in their order.
    pub(super) fn add(&mut self, sample: OnCpu) {
        if self.is_full() {
            self.homeless += 1;
            return;
        }
        self.count += 1;
        let thread = self.threads.entry((sample.ran.tgid, sample.tid));
        thread.or_default().push_back((sample.time_ns, sample.ran));
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= MOST
    }

    /// Takes those of a piece of work, by place. Earlier ones are in none.
    pub(super) fn take(
        &mut self,
        thread: (u32, u32),
        begin_ns: u64,
        end_ns: u64,
    ) -> Vec<(Ran, u64)> {
        let mut places: Vec<(Ran, u64)> = Vec::new();
        let Some(samples) = self.threads.get_mut(&thread) else {
            return places;
        };
        let until = samples.partition_point(|(time_ns, _)| *time_ns <= end_ns);
        self.count -= until;
        for (time_ns, ran) in samples.drain(..until) {
            if time_ns < begin_ns {
                continue;
            }
            match places.iter_mut().find(|(same, _)| *same == ran) {
                Some((_, count)) => *count += 1,
                None => places.push((ran, 1)),
            }
        }
        places
    }

    /// Forgets what can be in no piece of work: what came before `until_ns`, or before the begin of the piece that a thread is at.
    pub(super) fn forget(&mut self, until_ns: u64, begun_ns: impl Fn(&(u32, u32)) -> Option<u64>) {
        self.threads.retain(|thread, samples| {
            let since_ns = begun_ns(thread).unwrap_or(until_ns);
            let until = samples.partition_point(|(time_ns, _)| *time_ns < since_ns);
            samples.drain(..until);
            !samples.is_empty()
        });
        self.count = self.threads.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tid: u32, time_ns: u64, user: u64) -> OnCpu {
        let ran = Ran {
            tgid: 1,
            user,
            kernel: 0,
        };
        OnCpu { tid, time_ns, ran }
    }

    #[test]
    fn a_piece_takes_the_samples_between_its_ends_once() {
        let mut samples = Samples::default();
        for (tid, time_ns, user) in [
            (2, 9, 1),
            (2, 10, 1),
            (2, 15, 3),
            (2, 20, 1),
            (2, 21, 1),
            (4, 15, 1),
        ] {
            samples.add(sample(tid, time_ns, user));
        }
        let places = samples.take((1, 2), 10, 20);
        let places: Vec<_> = places
            .iter()
            .map(|(ran, count)| (ran.user, *count))
            .collect();
        assert_eq!(places, [(1, 2), (3, 1)]);
        assert_eq!(samples.count, 2);
        assert_eq!(samples.take((1, 2), 10, 20), []);
        assert_eq!(samples.take((1, 3), 0, 99), []);
        assert_eq!(samples.take((1, 2), 21, 21).len(), 1);
    }

    #[test]
    fn samples_that_may_yet_be_of_a_piece_are_kept() {
        let mut samples = Samples::default();
        for tid in [2, 4] {
            for time_ns in [10, 20, 30] {
                samples.add(sample(tid, time_ns, 1));
            }
        }
        samples.forget(30, |(_, tid)| (*tid == 2).then_some(20));
        assert_eq!(samples.count, 3);
        assert_eq!(samples.take((1, 2), 0, 99)[0].1, 2);
        assert_eq!(samples.take((1, 4), 0, 99)[0].1, 1);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut samples = Samples::default();
        for time_ns in 0..=MOST as u64 {
            samples.add(sample(2, time_ns, 1));
        }
        assert_eq!((samples.count, samples.homeless), (MOST, 1));
        samples.forget(u64::MAX, |_| None);
        assert!(!samples.is_full());
    }
}
