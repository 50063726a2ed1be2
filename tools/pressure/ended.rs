//! Tasks that have ended, in bounded memory: many of one name become one record.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::harvest::TaskStock;
use crate::victims::Filter;

/// So many records more than there are names, and they are put together.
const MANY: usize = 16 << 10;
/// Names that are told apart.
const MOST_NAMES: usize = 8 << 10;
/// What stands for all others.
const OTHERS: &str = "[others]";

/// What is known of a task, counted or estimated.
pub(crate) trait Record {
    fn task(&self) -> &TaskStock;
    fn task_mut(&mut self) -> &mut TaskStock;
    /// Adds what the other one lost, caused and used.
    fn absorb(&mut self, other: &Self);
    /// How much is lost with its name.
    fn weight_ns(&self) -> f64;
}

/// Of how many tasks a record is the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Many {
    /// Besides the one that the record names.
    pub(crate) processes: u64,
    pub(crate) threads: u64,
}

/// What tells records apart for whoever reads or filters them.
#[derive(PartialEq, Eq, Hash)]
struct Name {
    /// 0: of processes that are gone.
    tgid: u32,
    comm: Arc<str>,
    process_comm: Arc<str>,
    cgroup_id: u64,
    is_kernel_thread: bool,
}

/// Records of tasks that have ended.
pub(crate) struct Ended<R> {
    records: Vec<R>,
    limit: usize,
    /// Tasks whose names are told no more.
    unnamed: u64,
}

impl<R> Default for Ended<R> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            limit: MANY,
            unnamed: 0,
        }
    }
}

impl<R: Record> Ended<R> {
    pub(crate) fn extend(&mut self, records: impl IntoIterator<Item = R>, filter: &Filter) {
        self.records.extend(records);
        if self.records.len() > self.limit {
            self.fold(filter, |tgid| Path::new(&format!("/proc/{tgid}")).exists());
            self.limit = 2 * self.records.len() + MANY;
        }
    }

    /// The records since the last time, and of how many tasks the names are lost.
    pub(crate) fn take(&mut self) -> (Vec<R>, u64) {
        let taken = std::mem::take(self);
        (taken.records, taken.unnamed)
    }

    fn fold(&mut self, filter: &Filter, is_alive: impl Fn(u32) -> bool) {
        let mut alive = HashMap::new();
        let mut folded = Folded::default();
        for record in std::mem::take(&mut self.records) {
            let task = record.task();
            let tgid = task.tgid;
            let lives = tgid != 0 && *alive.entry(tgid).or_insert_with(|| is_alive(tgid));
            if filter.tids.contains(&task.tid) {
                self.records.push(record);
            } else if lives || filter.tgids.contains(&tgid) {
                folded.add(tgid, record);
            } else {
                folded.add(0, record);
            }
        }
        self.unnamed += folded.forget_smallest();
        self.records.append(&mut folded.records);
    }
}

/// One record per name.
struct Folded<R> {
    records: Vec<R>,
    places: HashMap<Name, usize>,
    /// Processes of each record of those that are gone.
    gone: Vec<HashSet<u32>>,
}

impl<R> Default for Folded<R> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            places: HashMap::new(),
            gone: Vec::new(),
        }
    }
}

impl<R: Record> Folded<R> {
    /// `tgid`: under which it goes on.
    fn add(&mut self, tgid: u32, mut record: R) {
        let task = record.task_mut();
        let own_tgid = task.tgid;
        let own = task.many.unwrap_or(Many {
            processes: 0,
            threads: 1,
        });
        let name = Name {
            tgid,
            comm: Arc::clone(&task.comm),
            process_comm: Arc::clone(&task.process_comm),
            cgroup_id: task.cgroup_id,
            is_kernel_thread: task.is_kernel_thread,
        };
        let place = *self.places.entry(name).or_insert(self.records.len());
        if place == self.records.len() {
            task.tgid = tgid;
            task.tid = 0;
            task.many = Some(Many::default());
            self.records.push(record);
            self.gone.push(HashSet::new());
        } else {
            self.records[place].absorb(&record);
        }
        let many = self.records[place].task_mut().many.get_or_insert_default();
        many.threads += own.threads;
        many.processes += own.processes;
        // A process is counted once, whenever its threads have ended.
        if tgid == 0 && own_tgid != 0 && self.gone[place].insert(own_tgid) {
            many.processes += 1;
        }
    }

    /// Of too many names the least of the gone become one; returns of how many tasks.
    fn forget_smallest(&mut self) -> u64 {
        if self.records.len() <= MOST_NAMES {
            return 0;
        }
        let weight = |record: &R| (record.task().tgid != 0, record.weight_ns());
        self.records
            .sort_by(|a, b| weight(b).partial_cmp(&weight(a)).expect("no NaN"));
        let is_others = |record: &R| &*record.task().comm == OTHERS;
        let small = self.records.split_off(MOST_NAMES);
        let mut others = self.records.iter().position(is_others);
        let mut unnamed = 0;
        for mut record in small {
            let task = record.task_mut();
            let own = task.many.unwrap_or_default();
            let own = Many {
                processes: own.processes + u64::from(task.tgid != 0),
                ..own
            };
            if &*task.comm != OTHERS {
                unnamed += own.threads;
            }
            let Some(place) = others else {
                (task.comm, task.process_comm) = (OTHERS.into(), OTHERS.into());
                (task.tgid, task.cgroup_id, task.is_kernel_thread) = (0, 0, false);
                task.many = Some(own);
                others = Some(self.records.len());
                self.records.push(record);
                continue;
            };
            self.records[place].absorb(&record);
            let many = self.records[place].task_mut().many.get_or_insert_default();
            many.processes += own.processes;
            many.threads += own.threads;
        }
        unnamed
    }
}

impl Record for TaskStock {
    fn task(&self) -> &TaskStock {
        self
    }

    fn task_mut(&mut self) -> &mut TaskStock {
        self
    }

    fn absorb(&mut self, other: &Self) {
        for (sum, lost_ns) in self.lost_ns.iter_mut().zip(other.lost_ns) {
            *sum += lost_ns;
        }
        self.caused_ns += other.caused_ns;
        self.ios += other.ios;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.faults += other.faults;
    }

    fn weight_ns(&self) -> f64 {
        (self.caused_ns + self.lost_ns.iter().sum::<u64>()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(tgid: u32, tid: u32, comm: &str) -> TaskStock {
        TaskStock {
            tgid,
            tid,
            comm: comm.into(),
            process_comm: "make".into(),
            cgroup_id: 1,
            is_kernel_thread: false,
            has_exited: true,
            lost_ns: [10, 0, 5],
            caused_ns: 3,
            ios: 1,
            read_bytes: 4096,
            written_bytes: 0,
            faults: 2,
            open: 0,
            open_ns: 0,
            many: None,
        }
    }

    fn figures(record: &TaskStock) -> (u32, &str, Option<(u64, u64)>, u64) {
        let many = record.many.map(|many| (many.processes, many.threads));
        (record.tgid, &record.comm, many, record.lost_ns[0])
    }

    #[test]
    fn the_gone_are_summed_by_name_and_counted_once() {
        let mut sum = Ended::default();
        let filter = Filter {
            tids: vec![31],
            ..Filter::default()
        };
        sum.extend(
            [
                ended(10, 10, "cc1"),
                ended(11, 11, "cc1"),
                ended(11, 12, "cc1"),
            ],
            &filter,
        );
        sum.extend(
            [
                ended(20, 21, "pool"),
                ended(20, 22, "pool"),
                ended(30, 31, "cc1"),
            ],
            &filter,
        );
        sum.fold(&filter, |tgid| tgid == 20);
        let seen: Vec<_> = sum.records.iter().map(figures).collect();
        assert_eq!(
            seen,
            [
                (30, "cc1", None, 10),
                (0, "cc1", Some((2, 3)), 30),
                (20, "pool", Some((0, 2)), 20)
            ]
        );
        // The process goes, too, after one more thread of its did.
        sum.extend([ended(20, 23, "pool"), ended(40, 40, "cc1")], &filter);
        sum.fold(&filter, |_| false);
        let (records, unnamed) = sum.take();
        let seen: Vec<_> = records.iter().map(figures).collect();
        assert_eq!(
            seen,
            [
                (30, "cc1", None, 10),
                (0, "cc1", Some((3, 4)), 40),
                (0, "pool", Some((1, 3)), 30)
            ]
        );
        assert_eq!(
            (unnamed, records[1].faults, records[1].read_bytes),
            (0, 8, 4 * 4096)
        );
    }

    #[test]
    fn memory_is_bounded_whatever_the_names() {
        let mut sum = Ended::default();
        let filter = Filter::default();
        for tgid in 1..200_000 {
            sum.extend([ended(tgid, tgid, &format!("job-{tgid}"))], &filter);
            assert!(sum.records.len() <= 2 * MOST_NAMES + 2 + MANY);
        }
        let (records, unnamed) = sum.take();
        assert_eq!(
            records.iter().map(|record| record.lost_ns[0]).sum::<u64>(),
            1_999_990
        );
        let others = records.iter().find(|record| &*record.comm == OTHERS);
        let many = others.and_then(|record| record.many).expect("others");
        assert!(
            unnamed > 100_000 && many.threads == unnamed,
            "{unnamed} {many:?}"
        );
        assert_eq!(many.processes, many.threads);
    }
}
