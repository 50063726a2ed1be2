//! Tasks as people think of them: threads under their process, processes that came and went under their name.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use bpf::pressure::types::account;

use crate::pressure::task::{TaskStock, add};

/// A process, or all short-lived processes of one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Party {
    pub(crate) comm: Arc<str>,
    /// `None`: the processes have ended.
    pub(crate) tgid: Option<u32>,
    /// Processes that ended, where there is no `tgid`.
    pub(crate) processes: u64,
    pub(crate) threads: u64,
    pub(crate) is_kernel_thread: bool,
    pub(crate) cgroup_id: u64,
    pub(crate) account: account,
    /// Longest wait not yet over, by what it is for.
    pub(crate) open_ns: [u64; 3],
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Alive(u32),
    Ended(Arc<str>),
}

/// Groups tasks; the order is that of first appearance.
pub(crate) fn group(tasks: &[TaskStock]) -> Vec<Party> {
    group_with(tasks, |tgid| Path::new(&format!("/proc/{tgid}")).exists())
}

fn group_with(tasks: &[TaskStock], is_alive: impl Fn(u32) -> bool) -> Vec<Party> {
    let mut alive: HashMap<u32, bool> = tasks
        .iter()
        .filter(|task| !task.has_exited)
        .map(|task| (task.tgid, true))
        .collect();
    let mut index: HashMap<Key, usize> = HashMap::new();
    let mut members: Vec<(HashSet<u32>, HashSet<u32>)> = Vec::new();
    let mut parties: Vec<Party> = Vec::new();
    for task in tasks {
        let lives = *alive
            .entry(task.tgid)
            .or_insert_with(|| task.tgid != 0 && is_alive(task.tgid));
        let key = if lives {
            Key::Alive(task.tgid)
        } else {
            Key::Ended(Arc::clone(&task.process_comm))
        };
        let at = *index.entry(key).or_insert_with(|| {
            parties.push(Party {
                comm: Arc::clone(&task.process_comm),
                tgid: lives.then_some(task.tgid),
                is_kernel_thread: task.is_kernel_thread,
                cgroup_id: task.cgroup_id,
                ..Party::default()
            });
            members.push(Default::default());
            parties.len() - 1
        });
        parties[at].add(task);
        if task.tgid != 0 || task.many.is_none() {
            members[at].0.insert(task.tgid);
        }
        if let Some(many) = task.many {
            parties[at].processes += many.processes;
            parties[at].threads += many.threads;
        } else {
            members[at].1.insert(task.tid);
        }
    }
    for (party, (processes, threads)) in parties.iter_mut().zip(&members) {
        // There may be processes that another PID namespace hides.
        party.processes = (party.processes + processes.len() as u64).max(1);
        party.threads += threads.len() as u64;
    }
    parties
}

impl Party {
    fn add(&mut self, task: &TaskStock) {
        for (resource, open_ns) in self.open_ns.iter_mut().enumerate() {
            if task.open & 1 << resource != 0 {
                *open_ns = (*open_ns).max(task.open_ns);
            }
        }
        add(&mut self.account, &task.account);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn task(tgid: u32, tid: u32, comm: &str, has_exited: bool) -> TaskStock {
        TaskStock {
            tgid,
            tid,
            comm: comm.into(),
            process_comm: comm.into(),
            cgroup_id: 1,
            is_kernel_thread: false,
            has_exited,
            account: account {
                lost_ns: [10, 0, 5],
                caused_ns: 3,
                ios: 1,
                read_bytes: 4096,
                written_bytes: 0,
                faults: 2,
            },
            open: if has_exited { 0 } else { 0b100 },
            open_ns: 7,
            many: None,
        }
    }

    #[test]
    fn threads_go_to_their_process_and_the_dead_to_their_name() {
        let tasks = [
            task(10, 10, "db", false),
            task(10, 11, "db", true),
            task(20, 20, "cc1", true),
            task(21, 21, "cc1", true),
            // Only a thread of it has ended.
            task(30, 31, "web", true),
        ];
        let parties = group_with(&tasks, |tgid| tgid == 30);
        let seen: Vec<_> = parties
            .iter()
            .map(|party| (&*party.comm, party.tgid, party.processes, party.threads))
            .collect();
        assert_eq!(
            seen,
            [
                ("db", Some(10), 1, 2),
                ("cc1", None, 2, 2),
                ("web", Some(30), 1, 1)
            ]
        );
        assert_eq!(parties[0].account.lost_ns, [20, 0, 10]);
        assert_eq!(parties[0].open_ns, [0, 0, 7]);
        assert_eq!(parties[1].open_ns, [0, 0, 0]);
    }
}
