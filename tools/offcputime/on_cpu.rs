//! Samples of threads on CPUs, which another engine took, until the pieces of work are known that they are in.

use std::collections::{HashMap, VecDeque};

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

/// Samples of one thread, in their order.
#[derive(Debug, Default)]
struct Thread {
    kept: VecDeque<(u64, Ran)>,
    /// Number of samples so far.
    seen: u64,
}

/// Samples that no piece of work has yet. Where there is no room for all, each thread keeps every second one, then every fourth.
#[derive(Debug)]
pub(crate) struct Samples {
    /// By process and thread.
    threads: HashMap<(u32, u32), Thread>,
    count: usize,
    /// One of so many is kept.
    each: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            threads: HashMap::new(),
            count: 0,
            each: 1,
        }
    }
}

impl Samples {
    /// Adds one; those of a thread come in their order.
    pub(super) fn add(&mut self, sample: OnCpu) {
        if self.count >= MOST {
            self.thin_out();
        }
        let thread = self.threads.entry((sample.ran.tgid, sample.tid));
        let thread = thread.or_default();
        thread.seen += 1;
        if thread.seen.is_multiple_of(self.each) {
            thread.kept.push_back((sample.time_ns, sample.ran));
            self.count += 1;
        }
    }

    fn thin_out(&mut self) {
        self.each *= 2;
        self.threads.retain(|_, thread| {
            let mut is_kept = false;
            thread.kept.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            !thread.kept.is_empty()
        });
        self.recount();
    }

    fn recount(&mut self) {
        self.count = self.threads.values().map(|thread| thread.kept.len()).sum();
    }

    /// Takes those of a piece of work, by place. Earlier ones are in none.
    pub(super) fn take(
        &mut self,
        thread: (u32, u32),
        begin_ns: u64,
        end_ns: u64,
    ) -> HashMap<Ran, u64> {
        let mut places = HashMap::new();
        let Some(Thread { kept, .. }) = self.threads.get_mut(&thread) else {
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
        self.threads.retain(|thread, Thread { kept, .. }| {
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
        assert!(samples.count <= MOST && samples.each > 1);
        let [one, other] = [2, 3].map(|tid| samples.threads[&(1, tid)].kept.len());
        assert!(one.abs_diff(other) <= 2, "{one}, {other}");
        let half = samples.take((1, 2), 0, MOST as u64);
        let all = MOST as u64 / 2 / samples.each;
        let found: u64 = half.values().sum();
        assert!(found.abs_diff(all) <= 2, "{found}, {all}");
    }
}
