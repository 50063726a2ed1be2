//! Details for tools that are made of several engines: the time of each process, how long waits took, and for which files and connections
//! they were.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use bpf::offcputime::OffcputimeSkel;
use bpf::offcputime::types::{open_phase, process_time};
use budget::{Bounded, Weighted, Window};
use hist::{Histogram, bucket};
use loader::maps;

use crate::offcputime::endpoints::Endpoint;

/// Most processes of all windows together.
const MOST_PROCESSES: usize = 1 << 16;

/// `LENGTH_BUCKET_BITS` of the BPF side.
const BUCKET_BITS: u32 = 10;
/// `QUEUE_LENGTHS`, without those bits.
const OF_QUEUE: u64 = 1 << (63 - BUCKET_BITS);

/// Lengths of waits: the histogram's buckets that are not empty, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lengths(Vec<(u16, u64)>);

impl Lengths {
    /// One more.
    fn record(&mut self, ns: u64) {
        self.add(bucket(ns) as u64, 1);
    }

    fn add(&mut self, bucket: u64, count: u64) {
        let Ok(bucket) = u16::try_from(bucket) else {
            return;
        };
        match self.0.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(count),
            Err(at) => self.0.insert(at, (bucket, count)),
        }
    }

    /// All of them, without their exact sum.
    pub(crate) fn add_to(&self, histogram: &mut Histogram) {
        for (bucket, count) in &self.0 {
            histogram.add(usize::from(*bucket), *count);
        }
    }

    /// Adds others.
    pub(crate) fn merge(&mut self, others: &Self) {
        for (bucket, count) in &others.0 {
            self.add(u64::from(*bucket), *count);
        }
    }
}

/// Time of a process's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTime {
    /// Number of them.
    pub threads: u64,
    /// Sum of their times inside the window, ns.
    pub lifetime_ns: u64,
    /// On a CPU, ns.
    pub oncpu_ns: u64,
    /// Between switches that were not seen, ns.
    pub unseen_ns: u64,
    /// Waits without a row, ns.
    pub lost_ns: u64,
}

/// Everything of one window, or of all.
#[derive(Debug, Default)]
pub struct Details {
    /// By process ID.
    pub processes: HashMap<u32, ProcessTime>,
    /// Lengths of times in the run queue after waits for something else, by process ID.
    pub queue: HashMap<u32, Lengths>,
    /// Files and connections that were waited for, by [`Row::endpoint`](super::row::Row::endpoint); of all windows together.
    pub endpoints: HashMap<u64, Endpoint>,
}

impl Details {
    /// Time of all threads of these processes.
    pub(crate) fn time_of(&self, tgids: &BTreeSet<u32>) -> ProcessTime {
        let times = tgids.iter().filter_map(|tgid| self.processes.get(tgid));
        times.fold(ProcessTime::default(), |sum, time| ProcessTime {
            threads: sum.threads + time.threads,
            lifetime_ns: sum.lifetime_ns.saturating_add(time.lifetime_ns),
            oncpu_ns: sum.oncpu_ns.saturating_add(time.oncpu_ns),
            unseen_ns: sum.unseen_ns.saturating_add(time.unseen_ns),
            lost_ns: sum.lost_ns.saturating_add(time.lost_ns),
        })
    }

    /// Takes what the tables hold: of the threads that have ended, and lengths by the id of a row, which are returned.
    pub(crate) fn drain(skel: &OffcputimeSkel<'_>) -> Result<(Self, HashMap<u64, Lengths>)> {
        let mut details = Self::default();
        for (tgid, time) in maps::drain::<u32, process_time>(&skel.maps.processes)? {
            let ended = ProcessTime {
                threads: time.threads,
                lifetime_ns: time.lifetime_ns,
                oncpu_ns: time.oncpu_ns,
                unseen_ns: time.unseen_ns,
                lost_ns: time.lost_ns,
            };
            details.processes.insert(tgid, ended);
        }
        let mut of_rows: HashMap<u64, Lengths> = HashMap::new();
        for (key, count) in maps::drain::<u64, u64>(&skel.maps.lengths)? {
            let (id, bucket) = (key >> BUCKET_BITS, key & ((1 << BUCKET_BITS) - 1));
            let lengths = match id & OF_QUEUE {
                0 => of_rows.entry(id).or_default(),
                _ => {
                    let tgid = u32::try_from(id & !OF_QUEUE).unwrap_or(0);
                    details.queue.entry(tgid).or_default()
                }
            };
            lengths.add(bucket, count);
        }
        Ok((details, of_rows))
    }

    /// Adds a thread that lives at the window's end.
    pub(crate) fn add_living(&mut self, open: &open_phase, is_running: bool) {
        let process = self.processes.entry(open.tgid).or_default();
        process.threads += 1;
        process.lifetime_ns += open.lifetime_ns;
        process.oncpu_ns += open.oncpu_ns;
        process.unseen_ns += open.unseen_ns;
        process.lost_ns += open.lost_ns;
        if is_running {
            process.oncpu_ns += open.phase_ns;
        }
    }

    /// Adds a wait without a row that lasts still.
    pub(crate) fn add_lost(&mut self, tgid: u32, ns: u64) {
        self.processes.entry(tgid).or_default().lost_ns += ns;
    }

    /// Adds a wait that lasts still: it is in no table. Returns the lengths of its row.
    pub(crate) fn add_open(&mut self, open: &open_phase) -> Lengths {
        let mut lengths = Lengths::default();
        match open.blocked_ns {
            0 => lengths.record(open.runqueue_ns),
            blocked_ns => {
                lengths.record(blocked_ns);
                if open.runqueue_ns > 0 {
                    let queue = self.queue.entry(open.tgid).or_default();
                    queue.record(open.runqueue_ns);
                }
            }
        }
        lengths
    }
}

/// Details of windows, added up by what each stands for. Lengths are as they were seen.
pub(crate) struct DetailSums {
    processes: Bounded<u32, ProcessSums>,
    /// Threads of processes that found no room.
    pub(crate) homeless: u64,
}

#[derive(Default)]
struct ProcessSums {
    threads: u64,
    times: [Weighted; 4],
    queue: Lengths,
}

impl Default for DetailSums {
    fn default() -> Self {
        Self {
            processes: Bounded::new(MOST_PROCESSES),
            homeless: 0,
        }
    }
}

impl DetailSums {
    pub(crate) fn add(&mut self, part: &Details, window: &Window) {
        for (tgid, time) in &part.processes {
            let Some(sums) = self.processes.entry(*tgid, ProcessSums::default) else {
                self.homeless += time.threads;
                continue;
            };
            sums.threads = sums.threads.max(time.threads);
            let times = [
                time.lifetime_ns,
                time.oncpu_ns,
                time.unseen_ns,
                time.lost_ns,
            ];
            for (sum, ns) in sums.times.iter_mut().zip(times) {
                sum.add(ns, window.weight());
            }
        }
        for (tgid, lengths) in &part.queue {
            match self.processes.entry(*tgid, ProcessSums::default) {
                Some(sums) => sums.queue.merge(lengths),
                // Its threads are counted above, if it had any.
                None => self.homeless += u64::from(!part.processes.contains_key(tgid)),
            }
        }
    }

    pub(crate) fn finish(&mut self, scale: f64) -> Details {
        let mut details = Details::default();
        for (tgid, sums) in self.processes.drain() {
            let [lifetime_ns, oncpu_ns, unseen_ns, lost_ns] =
                sums.times.map(|sum| sum.whole(scale));
            let time = ProcessTime {
                threads: sums.threads,
                lifetime_ns,
                oncpu_ns,
                unseen_ns,
                lost_ns,
            };
            details.processes.insert(tgid, time);
            if sums.queue != Lengths::default() {
                details.queue.insert(tgid, sums.queue);
            }
        }
        details
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_histogram_however_they_come_together() {
        let (mut whole, mut one, mut other) =
            (Histogram::default(), Lengths::default(), Lengths::default());
        for ns in (0..5_000_u64).map(|n| n * n * 7_919 % 1_000_003) {
            whole.record(ns);
            match ns % 3 {
                0 => one.record(ns),
                _ => other.record(ns),
            }
        }
        one.merge(&other);
        let mut found = Histogram::default();
        one.add_to(&mut found);
        assert!(whole.buckets().eq(found.buckets()));
        assert!(one.0.is_sorted_by_key(|(bucket, _)| *bucket));
    }

    #[test]
    fn windows_stand_for_their_strata_and_threads_for_themselves() {
        let mut sums = DetailSums::default();
        let mut part = Details::default();
        let time = ProcessTime {
            threads: 3,
            lifetime_ns: 10,
            oncpu_ns: 4,
            unseen_ns: 1,
            lost_ns: 2,
        };
        part.processes.insert(7, time);
        for stratum_ns in [100, 300] {
            let window = Window {
                start_ns: 0,
                end_ns: 10,
                stratum_ns,
            };
            sums.add(&part, &window);
        }
        let expected = ProcessTime {
            threads: 3,
            lifetime_ns: 400,
            oncpu_ns: 160,
            unseen_ns: 40,
            lost_ns: 80,
        };
        assert_eq!(sums.finish(1.0).processes[&7], expected);
    }
}
