//! A machine under a tool's programs: threads run, wait for CPUs and sleep at random, from before the window to its end.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::path::Path;

use fastrand::Rng;
use oracle::{Event, Kind, Logs};

use crate::host::calls::Calls;
use crate::host::leaving::{DEAD, Departures, EXIT, IDLE, INTERRUPTIBLE, Leaving};
use crate::host::{self, Host};

pub(crate) type Task = *mut c_void;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Asleep,
    Queued,
    Running,
}

pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) task: Task,
    pub(crate) state: State,
    /// Time at which it was put on a run queue last.
    pub(crate) queued_ns: u64,
    begin_ns: u64,
    /// It has not been on a queue yet.
    is_new: bool,
    /// No program runs while it is current.
    pub(super) is_shielded: bool,
}

/// A target, also one that has exited.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub(crate) tid: u32,
    /// When it began, or the window opened.
    pub(crate) begin_ns: u64,
    /// Its last switch, if it has exited; else that of the machine.
    pub(crate) end_ns: u64,
}

/// Opening of the window, ns.
pub(crate) const BEGIN_NS: u64 = 1_000;
const CPUS: u32 = 4;
pub(crate) const THREADS: u32 = 12;
/// Of these.
const SHIELDED: u32 = 2;

pub(crate) struct Machine {
    pub(crate) host: Host,
    pub(crate) calls: Calls,
    pub(super) rng: Rng,
    pub(crate) now: u64,
    /// The idle task is the first one.
    pub(crate) threads: Vec<Thread>,
    pub(crate) exited: Vec<Life>,
    pub(crate) last_tid: u32,
    /// Who has which CPU: a place in `threads`.
    pub(super) cpus: Vec<usize>,
    /// CPUs that are not there for now.
    pub(super) offline: Vec<bool>,
    pub(crate) events: Vec<Event>,
    /// Departures of threads from their CPUs: thread and time.
    pub(crate) left: HashMap<(u32, u64), Leaving>,
    pub(crate) departures: Departures,
    /// The time between two events is a multiple of it.
    pub(crate) tick_ns: u64,
    /// No program runs, and nobody forks.
    pub(crate) is_detached: bool,
    /// Wakeups are told of before they happen: `sched_waking`.
    pub(crate) tells_wakers: bool,
    /// Those: time, thread, and who woke it.
    pub(crate) wakings: Vec<(u64, u32, u32)>,
    /// The kernel leaves it to programs to look at the state of who leaves a CPU.
    pub(crate) hides_states: bool,
    /// Threads say where they leave the scheduler, and whether they were away: `sched_exit_tp`.
    pub(crate) tells_exits: bool,
    /// Looks at each thread between its exit and its end.
    pub(crate) see_dead: Option<fn(&Machine, &Thread)>,
}

impl Machine {
    /// The window opens after `wait_ns`.
    pub(crate) fn new(object: &Path, seed: u64, wait_ns: u64) -> Self {
        let host = Host::load(object);
        let calls = Calls::of(&host);
        let now = BEGIN_NS;
        let thread = |tid: u32| Thread {
            tid,
            // SAFETY: its type.
            task: unsafe { (calls.thread)(tid) },
            state: State::Asleep,
            queued_ns: 0,
            begin_ns: now,
            is_new: false,
            is_shielded: (1..=SHIELDED).contains(&tid),
        };
        let threads: Vec<Thread> = (0..=THREADS).map(thread).collect();
        // SAFETY: their types; the tasks live as long as the machine.
        unsafe {
            (calls.set)(now, 0, threads[0].task);
            (calls.begin)(now + wait_ns);
            for thread in threads.iter().filter(|thread| is_target(thread)) {
                (calls.seed)(thread.task);
            }
        }
        let mut machine = Self {
            host,
            calls,
            rng: Rng::with_seed(seed),
            now,
            threads,
            exited: Vec::new(),
            last_tid: THREADS,
            cpus: vec![0; CPUS as usize],
            offline: vec![false; CPUS as usize],
            events: Vec::new(),
            left: HashMap::new(),
            departures: Departures::default(),
            tick_ns: 1,
            is_detached: false,
            tells_wakers: false,
            wakings: Vec::new(),
            hides_states: false,
            tells_exits: false,
            see_dead: None,
        };
        // Whose first event is a switch has been queued since before the window, as far as a tool can know.
        machine.wake_all();
        machine
    }

    pub(crate) fn step(&mut self) {
        self.pass();
        self.act();
    }

    pub(crate) fn pass(&mut self) {
        let ns = self.rng.u64(1..2_000_000);
        self.now += ns.next_multiple_of(self.tick_ns);
    }

    pub(crate) fn steps(&mut self, events: u32) {
        for _ in 0..events {
            self.step();
        }
    }

    /// Something happens now.
    pub(crate) fn act(&mut self) {
        let cpu = self.rng.u32(0..CPUS);
        if self.rng.u32(0..100) == 0 {
            self.comes_or_goes(cpu);
        } else if self.offline[cpu as usize] {
            // Nothing happens there.
        } else if self.rng.u32(0..3) == 0 {
            self.wake(cpu);
        } else {
            self.switch(cpu);
        }
    }

    pub(super) fn note(&mut self, cpu: u32, kind: Kind) {
        let ns = self.now;
        self.events.push(Event { ns, cpu, kind });
    }

    pub(super) fn set(&self, cpu: u32) {
        let current = self.threads[self.cpus[cpu as usize]].task;
        // SAFETY: its type.
        unsafe { (self.calls.set)(self.now, cpu, current) };
    }

    /// Somebody asleep, or somebody who need not be woken.
    fn wake(&mut self, cpu: u32) {
        let at = self.rng.usize(1..self.threads.len());
        self.set(cpu);
        // No program runs where somebody shielded wakes.
        let is_seen = !self.threads[self.cpus[cpu as usize]].is_shielded;
        self.wake_one(cpu, at, is_seen);
    }

    fn wake_one(&mut self, cpu: u32, at: usize, is_seen: bool) {
        let (tid, task) = (self.threads[at].tid, self.threads[at].task);
        let runs = self.threads[at].state == State::Running;
        let told = is_seen && !self.is_detached && !self.threads[at].is_new;
        if self.tells_wakers && told {
            self.host.run("sched_waking", &[task as u64]);
            let waker = self.threads[self.cpus[cpu as usize]].tid;
            self.wakings.push((self.now, tid, waker));
        }
        if self.threads[at].state == State::Asleep {
            self.threads[at].state = State::Queued;
            self.threads[at].queued_ns = self.now;
            // SAFETY: their types.
            unsafe {
                (self.calls.state)(task, true, false, false);
                (self.calls.queued)(task, self.now);
                (self.calls.sleeps)(task, 0);
            }
        }
        let is_new = std::mem::take(&mut self.threads[at].is_new);
        if !is_seen || self.is_detached {
            return;
        }
        self.note(cpu, Kind::Wakeup { tid, is_new, runs });
        let wakeup = if is_new {
            "sched_wakeup_new"
        } else {
            "sched_wakeup"
        };
        self.host.run(wakeup, &[task as u64]);
    }

    fn switch(&mut self, cpu: u32) {
        let queued = |thread: &Thread| thread.state == State::Queued;
        let waiting: Vec<usize> = (1..self.threads.len())
            .filter(|at| queued(&self.threads[*at]))
            .collect();
        let next = self.rng.choice(waiting).unwrap_or(0);
        self.switch_to(cpu, next);
    }

    pub(super) fn switch_to(&mut self, cpu: u32, next: usize) {
        let prev = self.cpus[cpu as usize];
        if prev == next {
            return;
        }
        let way = if prev == 0 {
            IDLE
        } else if is_target(&self.threads[prev]) && !self.is_detached && self.rng.u32(0..400) == 0 {
            EXIT
        } else {
            Leaving::random(&mut self.rng)
        };
        let (leaving, coming) = (self.threads[prev].task, self.threads[next].task);
        // SAFETY: their types.
        unsafe {
            (self.calls.leaves)(leaving, way.stays);
            (self.calls.state)(leaving, way.stays, way.is_delayed, true);
            (self.calls.signal)(leaving, way.has_signal);
            (self.calls.sleeps)(leaving, way.state);
            (self.calls.says)(leaving, way.is_io, way.lock_field, way.is_throttled);
        }
        let tid = self.threads[prev].tid;
        self.left.insert((tid, self.now), way);
        self.departures.add(tid, way);
        if !self.threads[prev].is_shielded && !self.is_detached {
            self.set(cpu);
            let kind = Kind::Switch {
                prev: self.threads[prev].tid,
                next: self.threads[next].tid,
                runnable: way.stays,
                interruptible: way.state == INTERRUPTIBLE,
            };
            self.note(cpu, kind);
            let state = (!self.hides_states).then_some(way.state);
            self.host.switch(way.is_preempted, [leaving, coming], state);
        }
        self.threads[prev].state = if way.stays {
            self.threads[prev].queued_ns = self.now;
            State::Queued
        } else {
            State::Asleep
        };
        self.threads[next].state = State::Running;
        // SAFETY: their types.
        unsafe {
            (self.calls.state)(leaving, way.stays, way.is_delayed, false);
            (self.calls.signal)(leaving, false);
            (self.calls.says)(coming, false, 0, false);
            (self.calls.queued)(leaving, if way.stays { self.now } else { 0 });
            (self.calls.queued)(coming, 0);
            (self.calls.sleeps)(coming, 0);
            (self.calls.state)(coming, true, false, true);
        }
        self.cpus[cpu as usize] = next;
        self.leaves_scheduler(cpu, prev, next);
        if way.state == DEAD {
            self.replace(cpu, prev);
        }
    }

    /// The current thread forks, and the memory of the exited thread is free for its child.
    fn replace(&mut self, cpu: u32, at: usize) {
        let life = self.life_of(&self.threads[at]);
        self.exited.push(life);
        self.now += 1;
        self.last_tid += 1;
        if let Some(see) = self.see_dead {
            see(self, &self.threads[at]);
        }
        // SAFETY: made by `thread`, and used no more.
        unsafe { (self.calls.free_task)(self.threads[at].task) };
        self.threads[at] = Thread {
            tid: self.last_tid,
            // SAFETY: its type.
            task: unsafe { (self.calls.thread)(self.last_tid) },
            state: State::Asleep,
            queued_ns: 0,
            begin_ns: self.now,
            is_new: true,
            is_shielded: false,
        };
        self.set(cpu);
        let parent = self.threads[self.cpus[cpu as usize]].task;
        let child = self.threads[at].task;
        self.host.fork(parent, child);
    }

    /// Wakes all targets: runqlat counts what a sleeper has missed when it wakes.
    pub(crate) fn wake_all(&mut self) {
        self.now += 1;
        for at in 0..self.threads.len() {
            if is_target(&self.threads[at]) {
                self.set(0);
                self.wake_one(0, at, true);
            }
        }
    }

    /// Events of that time, as two logs that are the same.
    pub(crate) fn logs(&self, time: RangeInclusive<u64>) -> Logs {
        let first = self
            .events
            .partition_point(|event| event.ns < *time.start());
        let end = self.events.partition_point(|event| event.ns <= *time.end());
        Logs {
            before: self.events[first..end].to_vec(),
            after: self.events[first..end].to_vec(),
            missed: 0,
        }
    }

    pub(crate) fn lives(&self) -> impl Iterator<Item = Life> {
        let alive = self.alive().map(|thread| self.life_of(thread));
        self.exited.iter().copied().chain(alive)
    }

    pub(crate) fn alive(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter(|thread| is_target(thread))
    }

    fn life_of(&self, thread: &Thread) -> Life {
        Life {
            tid: thread.tid,
            begin_ns: thread.begin_ns,
            end_ns: self.now,
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for thread in &self.threads {
            // SAFETY: made by `thread`, and used no more.
            unsafe { (self.calls.free_task)(thread.task) };
        }
    }
}

/// Plays a million events under a tool's programs, 10,000 for each seed; `check` compares.
pub(crate) fn play(tool: &str, check: impl Fn(&mut Machine, u64)) {
    let object = host::compile(tool);
    for seed in 0..100 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.steps(10_000);
        check(&mut machine, seed);
    }
}

fn is_target(thread: &Thread) -> bool {
    thread.tid != 0 && !thread.is_shielded
}
