//! Waits for want of CPU quota, on kernels that throttle threads and on those that throttle queues, and the accounts of groups.

use std::path::Path;

use bpf::runqlat::types::culprit;
use fastrand::Rng;

use crate::host::machine::Task;
use crate::host::{self, Host};

const THREADS: usize = 6;
/// `QUOTA_TID`, in place of a thread.
const QUOTA: u32 = u32::MAX;
const INTERRUPTIBLE: u32 = 1;

/// A wait under way.
#[derive(Clone, Copy)]
struct Wait {
    since_ns: u64,
    is_without: bool,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    throttled_since_ns: Option<u64>,
}

/// One CPU, on which thread 0 is the idle task; the others are in two queues by turns.
struct Cpu {
    host: Host,
    rng: Rng,
    now: u64,
    throttles_queues: bool,
    tasks: Vec<Task>,
    waits: Vec<Option<Wait>>,
    queues: [(Task, Queue); 2],
    running: usize,
    /// Number and ns of waits, without quota and others.
    sums: [(u64, u64); 2],
}

impl Cpu {
    fn new(object: &Path, seed: u64, throttles_queues: bool) -> Self {
        let host = Host::load(object);
        if !throttles_queues {
            host.tell("host_throttle_tasks", ());
        }
        host.tell("host_begin", (1_u64,));
        let queues = [(); 2].map(|()| host.ask::<Task>("host_queue", ()));
        let thread = |tid| host.ask("host_thread", (tid,));
        let tasks: Vec<Task> = (0..=THREADS as u32).map(thread).collect();
        for (tid, task) in tasks.iter().enumerate().skip(1) {
            host.tell("host_seed", (*task,));
            host.tell("host_enqueue", (*task, queues[tid % 2]));
        }
        Self {
            host,
            rng: Rng::with_seed(seed),
            now: 10,
            throttles_queues,
            tasks,
            waits: vec![None; THREADS + 1],
            queues: queues.map(|queue| (queue, Queue::default())),
            running: 0,
            sums: [(0, 0); 2],
        }
    }

    fn set(&self) {
        let set = (self.now, 0_u32, self.tasks[self.running]);
        self.host.tell("host_set", set);
    }

    fn begin(&mut self, tid: usize) {
        let is_without = self.throttles_queues && self.is_throttled(tid);
        self.waits[tid] = Some(Wait {
            since_ns: self.now,
            is_without,
        });
    }

    fn is_throttled(&self, tid: usize) -> bool {
        self.queues[tid % 2].1.throttled_since_ns.is_some()
    }

    fn wake(&mut self) {
        let asleep = |tid: &usize| self.waits[*tid].is_none() && *tid != self.running;
        let asleep: Vec<usize> = (1..=THREADS).filter(asleep).collect();
        let Some(tid) = self.rng.choice(asleep) else {
            return;
        };
        self.set();
        self.host.run("sched_wakeup", &[self.tasks[tid] as u64]);
        self.begin(tid);
    }

    fn throttle(&mut self, queue: usize, throttle_count: u32, stood_still_ns: u64) {
        let queue = self.queues[queue].0;
        let told = (queue, throttle_count, stood_still_ns);
        self.host.tell("host_throttle_queue", told);
    }

    /// A queue gets quota again; all that waited in it meanwhile had none.
    fn unthrottle(&mut self, queue: usize) {
        if let Some(since_ns) = self.queues[queue].1.throttled_since_ns.take() {
            self.throttle(queue, 0, self.now - since_ns);
            let waits = self.waits.iter_mut().skip(queue).step_by(2).flatten();
            waits.for_each(|wait| wait.is_without = true);
        }
    }

    /// The quota of who runs is used up, or it is preempted, or it sleeps.
    fn switch(&mut self) {
        let (prev, is_used_up) = (self.running, self.rng.bool());
        let is_preempted = prev > 0 && (is_used_up || self.rng.bool());
        if prev > 0 && is_used_up && self.throttles_queues {
            self.throttle(prev % 2, 1, 0);
            self.queues[prev % 2].1.throttled_since_ns = Some(self.now);
        }
        let is_ready = |tid: &usize| self.waits[*tid].is_some() && !self.is_throttled(*tid);
        let ready: Vec<usize> = (1..=THREADS).filter(is_ready).collect();
        let next = self.rng.choice(ready).unwrap_or(0);
        if next == prev {
            return;
        }
        self.set();
        let is_alone = !self.throttles_queues && is_preempted && is_used_up;
        let host = &self.host;
        host.tell("host_throttle", (self.tasks[next], false));
        host.tell("host_throttle", (self.tasks[prev], is_alone));
        host.tell("host_leaves", (self.tasks[prev], is_preempted));
        let state = if is_preempted { 0 } else { INTERRUPTIBLE };
        let tasks = [prev, next].map(|tid| self.tasks[tid]);
        self.host.switch(is_preempted, tasks, Some(state));
        if let Some(wait) = self.waits[next].take() {
            let sum = &mut self.sums[usize::from(!wait.is_without)];
            *sum = (sum.0 + 1, sum.1 + self.now - wait.since_ns);
        }
        self.running = next;
        if is_preempted {
            self.begin(prev);
            self.waits[prev].as_mut().expect("a wait").is_without |= is_alone;
        }
    }

    fn caused(&self, tid: u32) -> (u64, u64) {
        let told: culprit = self
            .host
            .entry("culprits", &[tid, 0, 0, 0])
            .unwrap_or_default();
        (told.waits, told.caused_ns)
    }
}

#[test]
fn waits_without_quota_are_behind_nobody_and_others_are_not_for_quota() {
    let object = host::compile("runqlat");
    for (seed, throttles_queues) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut cpu = Cpu::new(&object, seed, throttles_queues);
        for _ in 0..2_000 {
            cpu.now += cpu.rng.u64(1..1_000);
            match cpu.rng.u32(..8) {
                0 | 1 => cpu.wake(),
                2 => cpu.unthrottle(0),
                3 => cpu.unthrottle(1),
                _ => cpu.switch(),
            }
        }
        let [without, others] = cpu.sums;
        let what = format!("seed {seed}, queues {throttles_queues}");
        assert!(without.0 > 50 && others.0 > 50, "{what}");
        assert_eq!(cpu.caused(QUOTA), without, "{what}");
        // A wait is behind several, or behind nobody that is known.
        let others_ns: u64 = (0..=THREADS as u32).map(|tid| cpu.caused(tid).1).sum();
        assert!(others_ns <= others.1, "{what}: {others_ns} {others:?}");
        assert!(others_ns >= others.1 / 2, "{what}: {others_ns} {others:?}");
    }
}

/// `struct quota_account`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Account {
    periods: u64,
    used_up: u64,
    throttled_ns: u64,
}

/// `struct quota`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Known {
    began: Account,
    now: Account,
}

fn known(host: &Host, id: u64) -> Option<Known> {
    host.entry("quotas", &id)
}

#[test]
fn accounts_are_of_groups_with_a_quota_that_targets_are_in() {
    let object = host::compile("runqlat");
    let host = Host::load(&object);
    let account = |n| Account {
        periods: 3 * n,
        used_up: n,
        throttled_ns: 1_000 * n,
    };
    let group = |parent: Task, id: u64| host.ask::<Task>("host_quota_group", (parent, id));
    let spend = |group: Task, has_quota: bool, n| {
        host.tell("host_spend", (group, has_quota, &account(n)));
    };
    let put = |thread: Task, group: Task| host.tell("host_put", (thread, group));
    let read = |thread: Task| host.tell("host_read_quotas", (thread,));
    let thread = |tid: u32| host.ask::<Task>("host_thread", (tid,));
    host.tell("host_begin", (1_u64,));
    let root = group(std::ptr::null_mut(), 1);
    let pod = group(root, 2);
    let free = group(pod, 3);
    let late = group(root, 4);
    spend(pod, true, 5);
    // It has had one.
    spend(late, false, 1);
    let (first, other, child) = (thread(7), thread(8), thread(9));
    put(first, free);
    put(other, late);
    put(child, late);
    host.tell("host_seed", (first,));
    // Nobody has asked for this one.
    read(other);
    assert_eq!((known(&host, 2), known(&host, 4)), (None, None));
    read(first);
    let at_first = Known {
        began: account(5),
        now: account(5),
    };
    assert_eq!(known(&host, 2), Some(at_first));
    assert_eq!((known(&host, 1), known(&host, 3)), (None, None));
    // A new target's groups are looked at when it comes, not before.
    host.fork(first, child);
    spend(late, false, 4);
    read(other);
    let of_late = Known {
        began: account(1),
        now: account(4),
    };
    assert_eq!(known(&host, 4), Some(of_late));
    // Others that move there later find it known.
    spend(pod, true, 9);
    put(other, pod);
    read(other);
    assert_eq!(known(&host, 2).expect("known").now, account(9));
    assert_eq!(known(&host, 2).expect("known").began, account(5));
}
