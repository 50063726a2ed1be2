//! Tasks that have ended, in bounded memory: many of one name become one record.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::pressure::task::{Many, TaskStock, add};
use crate::pressure::victims::Filter;

/// So many records more than there are names, and they are put together.
const MANY: usize = 16 << 10;
/// Names that are told apart.
const MOST_NAMES: usize = 8 << 10;
/// What stands for all others.
const OTHERS: &str = "[others]";

/// What tells records apart for whoever reads or filters them.
#[derive(PartialEq, Eq, Hash)]
struct Name {
    /// 0: of processes that are gone.
    tgid: u32,
    comm: Arc<str>,
    process_comm: Arc<str>,
    /// Filters look at more than is kept here.
    is_wanted: bool,
    is_kernel_thread: bool,
}

/// Records of tasks that have ended.
pub(crate) struct Ended {
    records: Vec<TaskStock>,
    limit: usize,
    /// Tasks whose names are told no more.
    unnamed: u64,
}

impl Default for Ended {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            limit: MANY,
            unnamed: 0,
        }
    }
}

impl Ended {
    pub(crate) fn extend(&mut self, records: impl IntoIterator<Item = TaskStock>, filter: &Filter) {
        self.records.extend(records);
        if self.records.len() > self.limit {
            self.fold(filter, |tgid| Path::new(&format!("/proc/{tgid}")).exists());
            self.limit = 2 * self.records.len() + MANY;
        }
    }

    /// Whether so many more make it fold, which asks whose they are.
    pub(crate) fn will_fold(&self, more: usize) -> bool {
        self.records.len() + more > self.limit
    }

    /// The records since the last time, and of how many tasks the names are lost.
    pub(crate) fn take(&mut self) -> (Vec<TaskStock>, u64) {
        let taken = std::mem::take(self);
        (taken.records, taken.unnamed)
    }

    fn fold(&mut self, filter: &Filter, is_alive: impl Fn(u32) -> bool) {
        let mut alive = HashMap::new();
        let mut folded = Folded::default();
        for record in std::mem::take(&mut self.records) {
            let tgid = record.tgid;
            let lives = tgid != 0 && *alive.entry(tgid).or_insert_with(|| is_alive(tgid));
            let is_wanted = filter.is_wanted(&record);
            folded.add(if lives { tgid } else { 0 }, is_wanted, record);
        }
        self.unnamed += folded.forget_smallest();
        self.records.append(&mut folded.records);
    }
}

/// One record per name.
#[derive(Default)]
struct Folded {
    records: Vec<TaskStock>,
    places: HashMap<Name, usize>,
    /// Processes that have been counted.
    gone: HashSet<u32>,
}

impl Folded {
    /// `tgid`: under which it goes on.
    fn add(&mut self, tgid: u32, is_wanted: bool, mut task: TaskStock) {
        let own_tgid = task.tgid;
        let own = task.many.unwrap_or(Many {
            is_wanted,
            processes: 0,
            threads: 1,
        });
        let name = Name {
            tgid,
            comm: Arc::clone(&task.comm),
            process_comm: Arc::clone(&task.process_comm),
            is_wanted,
            is_kernel_thread: task.is_kernel_thread,
        };
        let place = *self.places.entry(name).or_insert(self.records.len());
        if place == self.records.len() {
            task.tgid = tgid;
            task.tid = 0;
            task.many = Some(Many {
                is_wanted,
                ..Many::default()
            });
            self.records.push(task);
        } else {
            add(&mut self.records[place].account, &task.account);
        }
        let many = self.records[place].many.get_or_insert_default();
        many.threads += own.threads;
        many.processes += own.processes;
        // A process is counted once, whatever its threads were called.
        if tgid == 0 && own_tgid != 0 && self.gone.insert(own_tgid) {
            many.processes += 1;
        }
    }

    /// Of too many names the least of the gone become one; returns of how many tasks.
    fn forget_smallest(&mut self) -> u64 {
        if self.records.len() <= MOST_NAMES {
            return 0;
        }
        let weight = |record: &TaskStock| (record.tgid != 0, record.weight_ns());
        self.records
            .sort_by(|a, b| weight(b).partial_cmp(&weight(a)).expect("no NaN"));
        let small = self.records.split_off(MOST_NAMES);
        // Of those who were asked about, and of the rest.
        let mut others = [false, true].map(|is_wanted| {
            let is_it = |task: &TaskStock| {
                &*task.comm == OTHERS && task.many.is_some_and(|many| many.is_wanted == is_wanted)
            };
            self.records.iter().position(is_it)
        });
        let mut unnamed = 0;
        for mut task in small {
            let own = task.many.unwrap_or_default();
            if &*task.comm != OTHERS {
                unnamed += own.threads;
            }
            let others = &mut others[usize::from(own.is_wanted)];
            let Some(place) = *others else {
                (task.comm, task.process_comm) = (OTHERS.into(), OTHERS.into());
                (task.tgid, task.cgroup_id, task.is_kernel_thread) = (0, 0, false);
                task.many = Some(own);
                *others = Some(self.records.len());
                self.records.push(task);
                continue;
            };
            add(&mut self.records[place].account, &task.account);
            let many = self.records[place].many.get_or_insert_default();
            many.processes += own.processes;
            many.threads += own.threads;
        }
        unnamed
    }
}

/// What a task used, in time that others may have lost by it: a byte for a nanosecond, a page fault for a microsecond.
fn used_ns(task: &TaskStock) -> f64 {
    let used = &task.account;
    (used.read_bytes + used.written_bytes + 1_000 * used.faults) as f64
}

impl TaskStock {
    /// The weight that is lost with its name.
    fn weight_ns(&self) -> f64 {
        let time_ns = self.account.caused_ns + self.account.lost_ns.iter().sum::<u64>();
        time_ns as f64 + used_ns(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::parties::tests::task;

    fn ended(tgid: u32, tid: u32, comm: &str) -> TaskStock {
        TaskStock {
            process_comm: "make".into(),
            ..task(tgid, tid, comm, true)
        }
    }

    fn figures(record: &TaskStock) -> (u32, &str, Option<(u64, u64)>, u64) {
        let many = record.many.map(|many| (many.processes, many.threads));
        (record.tgid, &record.comm, many, record.account.lost_ns[0])
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
                (0, "cc1", Some((2, 3)), 30),
                (20, "pool", Some((0, 2)), 20),
                (0, "cc1", Some((1, 1)), 10),
            ]
        );
        assert!(filter.is_wanted(&sum.records[2]) && !filter.is_wanted(&sum.records[0]));
        // The process goes, too, after one more thread of its did.
        sum.extend([ended(20, 23, "pool"), ended(40, 40, "cc1")], &filter);
        sum.fold(&filter, |_| false);
        let (records, unnamed) = sum.take();
        let seen: Vec<_> = records.iter().map(figures).collect();
        assert_eq!(
            seen,
            [
                (0, "cc1", Some((3, 4)), 40),
                (0, "pool", Some((1, 3)), 30),
                (0, "cc1", Some((1, 1)), 10),
            ]
        );
        assert_eq!(
            (
                unnamed,
                records[0].account.faults,
                records[0].account.read_bytes
            ),
            (0, 8, 4 * 4096)
        );
    }

    #[test]
    fn a_process_is_one_whatever_its_threads_are_called() {
        let mut sum = Ended::default();
        let threads = ["rustc", "coordinator", "opt cgu.0"];
        let of_process = |tgid| (0..3).map(move |n| ended(tgid, tgid + n, threads[n as usize]));
        sum.extend(
            (1..=20).flat_map(|n| of_process(10 * n)),
            &Filter::default(),
        );
        sum.fold(&Filter::default(), |_| false);
        let all = sum.records.iter().filter_map(|record| record.many);
        let (processes, threads) = all.fold((0, 0), |sum, many| {
            (sum.0 + many.processes, sum.1 + many.threads)
        });
        assert_eq!((sum.records.len(), processes, threads), (3, 20, 60));
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
            records
                .iter()
                .map(|record| record.account.lost_ns[0])
                .sum::<u64>(),
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
