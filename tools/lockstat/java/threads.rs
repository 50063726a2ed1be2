//! Threads of a machine, for the BPF side: where each has its JavaThread.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{
    java_class_key, java_machine, java_number_key, java_thread, java_thread_key,
};

use super::asleep::Sleepers;
use super::executors::Queues;
use super::{put, put_new};
use crate::lockstat::hotspot::{Awaited, JavaThread, Machine};

/// A process and its machine.
pub(super) struct Process<'a> {
    pub(super) tgid: u32,
    pub(super) machine: &'a Machine<'a>,
    pub(super) layout: &'a java_machine,
}

/// Time between looks at all threads: one may have begun where another one was, and the BPF side may have forgotten some.
const AFRESH: Duration = Duration::from_secs(30);

/// Threads that the BPF side was told of.
#[derive(Default)]
pub(super) struct Threads {
    /// Address of the list of threads, as it was last.
    list: u64,
    looked: Option<Instant>,
    /// Their IDs, by the addresses of their JavaThreads.
    told: HashMap<u64, u32>,
    pub(super) queues: Queues,
}

impl Threads {
    /// Number of those that the BPF side was told of and that are there.
    pub(super) fn count(&self) -> usize {
        self.told.len()
    }

    /// Tells of those that have begun since the last time.
    pub(super) fn follow(
        &mut self,
        process: &Process<'_>,
        asleep: &Sleepers,
        skel: &LockstatSkel<'_>,
    ) -> Result<()> {
        let (machine, layout) = (process.machine, process.layout);
        self.queues.follow(machine, layout);
        let Some(list) = machine.list() else {
            // It has ended, or is told of anew when it answers again.
            (self.told, self.list) = (HashMap::new(), 0);
            return Ok(());
        };
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= AFRESH);
        if list == self.list && !is_due {
            return Ok(());
        }
        let Some(listed) = machine.listed(list) else {
            return Ok(());
        };
        if is_due {
            self.queues.forget();
        }
        let mut told = HashMap::new();
        let mut news = Vec::new();
        for address in listed {
            let known = self.told.get(&address).filter(|_| !is_due).copied();
            let tid = known.or_else(|| machine.tid(address));
            let Some(tid) = tid.filter(|tid| *tid != 0) else {
                continue;
            };
            told.insert(address, tid);
            if is_due || self.told.get(&address) != Some(&tid) {
                news.extend(machine.thread(address));
                self.queues.learn(machine, layout, address);
            }
        }
        process.tell(&news, asleep, skel)?;
        (self.told, self.list) = (told, list);
        if is_due {
            self.looked = Some(Instant::now());
        }
        Ok(())
    }
}

impl Process<'_> {
    fn tell(&self, news: &[JavaThread], asleep: &Sleepers, skel: &LockstatSkel<'_>) -> Result<()> {
        let tgid = self.tgid;
        let by_address: HashMap<u64, u32> = news.iter().map(|one| (one.address, one.tid)).collect();
        let mut owners = HashMap::new();
        let mut has = |monitor| {
            let owner = || Some(self.machine.owner(monitor, news)?.tid);
            *owners.entry(monitor).or_insert_with(owner)
        };
        for thread in news {
            let owner = |awaited: &Awaited| match thread.awaited {
                Some(monitor) => has(monitor),
                None => by_address.get(&awaited.owner).copied(),
            };
            let value = self.value(thread, owner, asleep);
            if value.class != 0 {
                let class = java_class_key {
                    class: value.class,
                    tgid,
                    hole: 0,
                };
                put_new(&skel.maps.java_classes, &class, &0_u8);
            }
            let key = java_thread_key {
                tgid,
                tid: thread.tid,
            };
            put(&skel.maps.java_threads, &key, &value)?;
            if let Some(number) = thread.owner_id {
                let key = java_number_key {
                    number,
                    tgid,
                    hole: 0,
                };
                put(&skel.maps.java_numbers, &key, &thread.address)?;
            }
        }
        Ok(())
    }

    /// A thread for the BPF side, and if it has slept since before tracing began, what for. `owner`: the thread that has that.
    fn value(
        &self,
        thread: &JavaThread,
        owner: impl FnOnce(&Awaited) -> Option<u32>,
        asleep: &Sleepers,
    ) -> java_thread {
        let unknown = java_thread {
            address: thread.address,
            ..java_thread::default()
        };
        let Some(before) = asleep.get(thread.tid) else {
            return unknown;
        };
        let awaited = self.machine.awaited(self.layout, thread.address);
        let Some(awaited) = awaited.filter(|_| before.sleeps_still(self.tgid)) else {
            return unknown;
        };
        let owner = owner(&awaited).and_then(|owner| asleep.get(owner));
        java_thread {
            switches: before.switches,
            class: awaited.class,
            object: awaited.object,
            monitor: awaited.monitor,
            owner: owner.map_or(0, |owner| owner.tid),
            wait: awaited.what as u32,
            ..unknown
        }
    }
}
