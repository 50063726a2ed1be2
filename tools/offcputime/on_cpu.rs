//! Samples of threads on CPUs, which another engine took, until the pieces of work are known that they are in.

use std::collections::{HashMap, VecDeque};

use hist::random::round_fairly;

/// Most samples that are kept, of 32 bytes each: what 2 busy CPUs make in four minutes, at 499 Hz.
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

/// Samples that no piece of work has yet. Where there is no room for all, one of two is kept at random, then one of four.
#[derive(Debug)]
pub(crate) struct Samples {
    /// By process and thread, in their order.
    threads: HashMap<(u32, u32), VecDeque<(u64, Ran)>>,
    count: usize,
    /// The share that is kept, and the state of its chance.
    share: f64,
    random: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            threads: HashMap::new(),
            count: 0,
            share: 1.0,
            random: 1,
        }
    }
}

impl Samples {
    /// Adds one; those of a thread come in their order.
    pub(super) fn add(&mut self, sample: OnCpu) {
        if self.count >= MOST {
            self.thin_out();
        }
        if round_fairly(self.share, &mut self.random) == 0 {
            return;
        }
        let thread = self.threads.entry((sample.ran.tgid, sample.tid));
        let thread = thread.or_default();
        thread.push_back((sample.time_ns, sample.ran));
        self.count += 1;
    }

    fn thin_out(&mut self) {
        self.share /= 2.0;
        let random = &mut self.random;
        self.threads.retain(|_, kept| {
            kept.retain(|_| round_fairly(0.5, random) > 0);
            !kept.is_empty()
        });
        self.recount();
    }

    fn recount(&mut self) {
        self.count = self.threads.values().map(VecDeque::len).sum();
    }

    /// Takes those of a piece of work, by place. Earlier ones are in none.
    pub(super) fn take(
        &mut self,
        thread: (u32, u32),
        begin_ns: u64,
        end_ns: u64,
    ) -> HashMap<Ran, u64> {
        let mut places = HashMap::new();
        let Some(kept) = self.threads.get_mut(&thread) else {
            return places;
        };
        let until = kept.partition_point(|(time_ns, _)| *time_ns <= end_ns);
        self.count -= until;
        let taken = kept.drain(..until);
        for (_, ran) in taken.filter(|(time_ns, _)| *time_ns >= begin_ns) {
            *places.entry(ran).or_default() += 1;
        }
        places
    }

    /// Forgets those that can be in no piece of work: from before `until_ns`, or from before the begin of the piece that a thread is at.
    pub(super) fn forget(&mut self, until_ns: u64, begun_ns: impl Fn(&(u32, u32)) -> Option<u64>) {
        self.threads.retain(|thread, kept| {
            let since_ns = begun_ns(thread).unwrap_or(until_ns);
            let until = kept.partition_point(|(time_ns, _)| *time_ns < since_ns);
            kept.drain(..until);
            !kept.is_empty()
        });
        self.recount();
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
        let mut places: Vec<_> = places
            .iter()
            .map(|(ran, count)| (ran.user, *count))
            .collect();
        places.sort_unstable();
        assert_eq!(places, [(1, 2), (3, 1)]);
        assert_eq!(samples.count, 2);
        assert!(samples.take((1, 2), 10, 20).is_empty());
        assert!(samples.take((1, 3), 0, 99).is_empty());
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
        assert_eq!(samples.take((1, 2), 0, 99).values().sum::<u64>(), 2);
        assert_eq!(samples.take((1, 4), 0, 99).values().sum::<u64>(), 1);
    }

    #[test]
    fn samples_of_all_threads_are_thinned_out_alike_where_there_is_no_room() {
        let mut samples = Samples::default();
        for time_ns in 0..2 * MOST as u64 {
            samples.add(sample(2 + (time_ns % 2) as u32, time_ns, 1));
        }
        // The seed is the same each time.
        assert!(samples.count <= MOST && samples.share < 1.0);
        let near = |share: f64| {
            let expected = (MOST as f64 * share) as usize;
            expected - expected / 50..=expected + expected / 50
        };
        for tid in [2, 3] {
            let found = samples.threads[&(1, tid)].len();
            assert!(near(samples.share).contains(&found), "{found}");
        }
        let half = samples.take((1, 2), 0, MOST as u64).values().sum::<u64>() as usize;
        assert!(near(samples.share / 2.0).contains(&half), "{half}");
    }
}
