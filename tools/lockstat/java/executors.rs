//! Executors: their threads have nothing to do where they wait for their own queue. And carriers of virtual threads.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bpf::lockstat::types::java_machine;

use crate::lockstat::hotspot::Machine;

/// The end of the name of what an executor's thread runs: of java.util.concurrent, and of Tomcat.
const WORKER: &str = ".ThreadPoolExecutor$Worker";
/// The class of threads that virtual threads run on.
const CARRIER: &str = "jdk.internal.misc.CarrierThread";
/// Fields of a thread that lead to what it runs: from JDK 19 on there is one object between, and one more of Tomcat's.
const RUNS: [&[&str]; 4] = [
    &["holder", "task", "wrappedRunnable"],
    &["holder", "task"],
    &["target", "wrappedRunnable"],
    &["target"],
];
/// Fields of a queue that its takers wait for: of most, of those with delays, and of those that hand over.
const TAKERS: [&str; 3] = ["notEmpty", "available", "transferer"];
/// Objects that are remembered, which move, and classes.
const MOST: usize = 1 << 16;
const MOST_CLASSES: usize = 1 << 12;
/// Time between looks at where they are.
const AGAIN: Duration = Duration::from_millis(250);

/// Objects that executors' threads wait for when they have nothing to do, wherever these were.
#[derive(Default)]
pub(super) struct Queues {
    found: HashSet<u64>,
    /// The same of longer ago.
    before: HashSet<u64>,
    /// A thread of each executor, by its JavaThread, and when these were looked at.
    threads: HashMap<u64, u64>,
    looked: Option<Instant>,
    known: Known,
}

/// Facts known of classes, by their addresses.
#[derive(Default)]
struct Known {
    /// Those that workers and carriers are of.
    workers: HashMap<u64, bool>,
    carriers: HashMap<u64, bool>,
    has_carriers: bool,
    offsets: HashMap<(u64, &'static str), Option<u64>>,
}

/// An executor and its queue's objects.
struct Executor {
    address: u64,
    takers: Vec<u64>,
}

impl Queues {
    /// Looks whether there is such an object.
    pub(super) fn have(&self, object: u64) -> bool {
        self.found.contains(&object) || self.before.contains(&object)
    }

    /// Looks whether there are virtual threads.
    pub(super) fn carry(&self) -> bool {
        self.known.has_carriers
    }

    /// Takes in the executor that a thread works for, if it does.
    pub(super) fn learn(&mut self, machine: &Machine<'_>, layout: &java_machine, thread: u64) {
        if let Some(executor) = self.known.executor(machine, layout, thread) {
            self.threads.insert(executor.address, thread);
            if self.found.len() >= MOST {
                self.before = std::mem::take(&mut self.found);
            }
            let bits = layout.address_bits;
            let takers = executor.takers.into_iter().map(|taker| taker & bits);
            self.found.extend(takers);
        }
    }

    /// Looks where the objects are now, if it is time.
    pub(super) fn follow(&mut self, machine: &Machine<'_>, layout: &java_machine) {
        if self.looked.is_some_and(|looked| looked.elapsed() < AGAIN) {
            return;
        }
        self.looked = Some(Instant::now());
        for thread in std::mem::take(&mut self.threads).into_values() {
            self.learn(machine, layout, thread);
        }
    }

    /// All threads are going to be learned again.
    pub(super) fn forget(&mut self) {
        self.threads.clear();
        self.known.workers.clear();
        self.known.carriers.clear();
        self.known.offsets.clear();
    }
}

impl Known {
    fn executor(
        &mut self,
        machine: &Machine<'_>,
        layout: &java_machine,
        thread: u64,
    ) -> Option<Executor> {
        if self.offsets.len() >= MOST_CLASSES {
            self.offsets.clear();
        }
        let own = machine.object_of(layout, thread)?;
        let class = machine.class_of(layout, own)?;
        let is_carrier = || machine.name(class).is_some_and(|name| name == CARRIER);
        self.has_carriers |= *self.carriers.entry(class).or_insert_with(is_carrier);
        let mut to = |object: u64, field: &'static str| self.to(machine, layout, object, field);
        let mut along =
            |path: &&[&'static str]| path.iter().try_fold(own, |at, field| to(at, field));
        let candidates: Vec<u64> = RUNS.iter().filter_map(&mut along).collect();
        let worker = candidates.into_iter().find(|runs| {
            let class = machine.class_of(layout, *runs);
            class.is_some_and(|class| self.is_worker(machine, class))
        })?;
        let mut to = |object: u64, field: &'static str| self.to(machine, layout, object, field);
        let address = to(worker, "this$0")?;
        let queue = to(address, "workQueue")?;
        let takers = TAKERS.into_iter().filter_map(|field| to(queue, field));
        Some(Executor {
            address,
            takers: takers.collect(),
        })
    }

    fn is_worker(&mut self, machine: &Machine<'_>, class: u64) -> bool {
        let is_one = || {
            machine
                .name(class)
                .is_some_and(|name| name.ends_with(WORKER))
        };
        *self.workers.entry(class).or_insert_with(is_one)
    }

    /// The object that a field of an object refers to; `None`: there is none.
    fn to(
        &mut self,
        machine: &Machine<'_>,
        layout: &java_machine,
        object: u64,
        field: &'static str,
    ) -> Option<u64> {
        let class = machine.class_of(layout, object)?;
        let offset = match self.offsets.entry((class, field)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => *unknown.insert(machine.offset(class, field)),
        };
        let to = machine.reference(layout, object.checked_add(offset?)?)?;
        Some(to).filter(|to| *to != 0)
    }
}

#[cfg(test)]
#[path = "executors_tests.rs"]
mod tests;
