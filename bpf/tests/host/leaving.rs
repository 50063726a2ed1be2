//! Ways to leave a CPU.

use std::collections::HashMap;

use fastrand::Rng;
use oracle::Kind;

use crate::host::machine::Machine;

/// `TASK_INTERRUPTIBLE`
pub(crate) const INTERRUPTIBLE: u32 = 1;
/// `TASK_UNINTERRUPTIBLE`
const UNINTERRUPTIBLE: u32 = 2;
/// `TASK_KILLABLE`
const KILLABLE: u32 = 0x102;
/// `__TASK_STOPPED`
const STOPPED: u32 = 4;
/// `__TASK_TRACED`
const TRACED: u32 = 8;
/// `TASK_IDLE`
const IDLING: u32 = 0x402;
/// `TASK_RTLOCK_WAIT`: ps does not know it, and the queue decides.
const UNKNOWN: u32 = 0x1000;
/// `TASK_DEAD`
pub(super) const DEAD: u32 = 0x80;

/// A way to leave a CPU.
#[derive(Clone, Copy)]
pub(crate) struct Leaving {
    pub(super) is_preempted: bool,
    pub(crate) state: u32,
    pub(super) has_signal: bool,
    /// On the queue.
    pub(crate) stays: bool,
    pub(super) is_delayed: bool,
    /// It waits for a disk.
    pub(crate) is_io: bool,
    /// Field that names the kernel's lock that it waits for; 0: none.
    pub(crate) lock_field: u32,
    /// Its cgroup has used up its share of the CPUs.
    pub(crate) is_throttled: bool,
}

pub(super) const IDLE: Leaving = Leaving {
    is_preempted: false,
    state: 0,
    has_signal: false,
    stays: true,
    is_delayed: false,
    is_io: false,
    lock_field: 0,
    is_throttled: false,
};

pub(super) const EXIT: Leaving = Leaving {
    is_preempted: false,
    state: DEAD,
    has_signal: false,
    stays: false,
    is_delayed: false,
    is_io: false,
    lock_field: 0,
    is_throttled: false,
};

impl Leaving {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let (is_preempted, state, has_signal, stays) = match rng.u32(0..8) {
            // Driven off, also on the way to sleep.
            0 => (true, 0, false, true),
            1 => (true, INTERRUPTIBLE, false, true),
            // Yields.
            2 => (false, 0, false, true),
            // Kept from sleeping.
            3 => (false, INTERRUPTIBLE, true, true),
            4 => (false, UNKNOWN, false, rng.bool()),
            5 => {
                let states = [UNINTERRUPTIBLE, KILLABLE, STOPPED, TRACED, IDLING];
                (false, *rng.choice(&states).expect("some"), false, false)
            }
            _ => (false, INTERRUPTIBLE, false, false),
        };
        Self {
            is_preempted,
            state,
            has_signal,
            stays,
            is_delayed: !stays && rng.bool(),
            is_io: rng.u32(0..4) == 0,
            lock_field: rng.u32(0..8).saturating_sub(4),
            is_throttled: rng.u32(0..4) == 0,
        }
    }
}

/// By thread: how often it has left a CPU, and the last time.
#[derive(Default)]
pub(crate) struct Departures(pub(crate) HashMap<u32, (usize, Leaving)>);

impl Departures {
    pub(super) fn add(&mut self, tid: u32, way: Leaving) {
        let (times, last) = self.0.entry(tid).or_insert((0, way));
        *times += 1;
        *last = way;
    }
}

impl Machine {
    /// Number of times that a thread has left a CPU.
    pub(crate) fn times_left(&self, tid: u32) -> usize {
        self.departures.0.get(&tid).map_or(0, |(times, _)| *times)
    }
    /// A thread that starts does so elsewhere.
    pub(super) fn leaves_scheduler(&mut self, cpu: u32, prev: usize, next: usize) {
        let (tid, is_shielded) = (self.threads[next].tid, self.threads[next].is_shielded);
        if !self.tells_exits || is_shielded || tid == 0 {
            return;
        }
        self.set(cpu);
        if self.times_left(tid) > 0 {
            if self.threads[prev].is_shielded {
                // The switch was hidden, and is known all the same.
                let kind = Kind::Switch {
                    prev: self.threads[prev].tid,
                    next: tid,
                    runnable: false,
                    interruptible: true,
                };
                self.note(cpu, kind);
            }
            self.host.run("sched_exit", &[1]);
        }
        // It enters the scheduler once more, and stays.
        self.host.run("sched_exit", &[0]);
    }
}
