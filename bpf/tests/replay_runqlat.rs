//! runqlat's programs on random orders of events, with hidden switches, against the model that live tests hold the tool to.

mod host;

use std::ffi::c_void;
use std::path::Path;

use fastrand::Rng;
use host::Host;
use oracle::{Bracket, Event, Kind, Logs, behind, run_queue};

type Task = *mut c_void;

/// `host/runqlat.c`
struct Programs {
    set: unsafe extern "C" fn(u64, u32, Task),
    thread: unsafe extern "C" fn(u32) -> Task,
    free_task: unsafe extern "C" fn(Task),
    leaves: unsafe extern "C" fn(Task, bool),
    state: unsafe extern "C" fn(Task, bool, bool),
    begin: unsafe extern "C" fn(u64),
    seed: unsafe extern "C" fn(Task),
    switch: unsafe extern "C" fn(bool, Task, Task, u32),
    wakeup: unsafe extern "C" fn(Task),
    counted: unsafe extern "C" fn(*mut u64, *mut u64),
    caused: unsafe extern "C" fn(u32, *mut u64, *mut u64),
    unseen: unsafe extern "C" fn() -> u64,
    /// Behind what points into it.
    _host: Host,
}

impl Programs {
    fn load(object: &Path) -> Self {
        let host = Host::load(object);
        // SAFETY: the types of host/runqlat.c and host/host.h.
        unsafe {
            Self {
                set: *host.function("host_set"),
                thread: *host.function("host_thread"),
                free_task: *host.function("host_free_task"),
                leaves: *host.function("host_leaves"),
                state: *host.function("host_state"),
                begin: *host.function("host_begin"),
                seed: *host.function("host_seed"),
                switch: *host.function("host_switch"),
                wakeup: *host.function("host_wakeup"),
                counted: *host.function("host_counted"),
                caused: *host.function("host_caused"),
                unseen: *host.function("host_unseen"),
                _host: host,
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    Queued,
    Running,
}

struct Thread {
    tid: u32,
    task: Task,
    state: State,
    /// No program runs while it is current.
    is_shielded: bool,
}

const CPUS: u32 = 4;
const THREADS: u32 = 12;
/// Of these.
const SHIELDED: u32 = 2;
/// `TASK_INTERRUPTIBLE`
const INTERRUPTIBLE: u32 = 1;

/// A machine whose scheduler does whatever the kernel's could.
struct Machine {
    programs: Programs,
    rng: Rng,
    now: u64,
    /// The idle task is the first one.
    threads: Vec<Thread>,
    /// Who has which CPU: a place in `threads`.
    cpus: Vec<usize>,
    events: Vec<Event>,
}

impl Machine {
    fn new(object: &Path, seed: u64) -> Self {
        let programs = Programs::load(object);
        let now = 1_000;
        let thread = |tid: u32| Thread {
            tid,
            // SAFETY: its type.
            task: unsafe { (programs.thread)(tid) },
            state: State::Asleep,
            is_shielded: (1..=SHIELDED).contains(&tid),
        };
        let threads: Vec<Thread> = (0..=THREADS).map(thread).collect();
        // SAFETY: their types; the tasks live as long as the machine.
        unsafe {
            (programs.set)(now, 0, threads[0].task);
            (programs.begin)(now);
            for thread in threads.iter().filter(|thread| is_target(thread)) {
                (programs.seed)(thread.task);
            }
        }
        Self {
            programs,
            rng: Rng::with_seed(seed),
            now,
            threads,
            cpus: vec![0; CPUS as usize],
            events: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.now += self.rng.u64(1..2_000_000);
        let cpu = self.rng.u32(0..CPUS);
        if self.rng.u32(0..3) == 0 {
            self.wake(cpu);
        } else {
            self.switch(cpu);
        }
    }

    fn note(&mut self, cpu: u32, kind: Kind) {
        let ns = self.now;
        self.events.push(Event { ns, cpu, kind });
    }

    fn set(&self, cpu: u32) {
        let current = self.threads[self.cpus[cpu as usize]].task;
        // SAFETY: its type.
        unsafe { (self.programs.set)(self.now, cpu, current) };
    }

    /// Somebody asleep, or somebody who need not be woken.
    fn wake(&mut self, cpu: u32) {
        let at = self.rng.usize(1..self.threads.len());
        let (tid, task) = (self.threads[at].tid, self.threads[at].task);
        self.set(cpu);
        if self.threads[at].state == State::Asleep {
            self.threads[at].state = State::Queued;
            // SAFETY: its type.
            unsafe { (self.programs.state)(task, true, false) };
        }
        // Whoever is current when a shielded thread wakes somebody is shielded, too.
        if self.threads[self.cpus[cpu as usize]].is_shielded {
            return;
        }
        let runs = self.threads[at].state == State::Running;
        self.note(
            cpu,
            Kind::Wakeup {
                tid,
                is_new: false,
                runs,
            },
        );
        // SAFETY: its type.
        unsafe { (self.programs.wakeup)(task) };
    }

    fn switch(&mut self, cpu: u32) {
        let prev = self.cpus[cpu as usize];
        let queued = |thread: &Thread| thread.state == State::Queued;
        let waiting: Vec<usize> = (1..self.threads.len())
            .filter(|at| queued(&self.threads[*at]))
            .collect();
        let next = self.rng.choice(waiting).unwrap_or(0);
        if prev == next {
            return;
        }
        let is_idle = prev == 0;
        let preempt = !is_idle && self.rng.bool();
        let stays = is_idle || preempt;
        // Who is driven off may have been about to sleep.
        let state = if stays && self.rng.u32(0..4) > 0 {
            0
        } else {
            INTERRUPTIBLE
        };
        let state = if is_idle { 0 } else { state };
        let (leaving, coming) = (self.threads[prev].task, self.threads[next].task);
        // SAFETY: its type.
        unsafe { (self.programs.leaves)(leaving, stays) };
        if !self.threads[prev].is_shielded {
            self.set(cpu);
            let (of, to) = (self.threads[prev].tid, self.threads[next].tid);
            self.note(
                cpu,
                Kind::Switch {
                    prev: of,
                    next: to,
                    runnable: stays,
                    interruptible: state == INTERRUPTIBLE,
                },
            );
            // SAFETY: its type.
            unsafe { (self.programs.switch)(preempt, leaving, coming, state) };
        }
        self.threads[prev].state = if stays { State::Queued } else { State::Asleep };
        self.threads[next].state = State::Running;
        // SAFETY: their types.
        unsafe {
            (self.programs.state)(leaving, stays, false);
            (self.programs.state)(coming, true, true);
        }
        self.cpus[cpu as usize] = next;
    }

    /// Who sleeps is asked what it has missed when it wakes.
    fn wake_all(&mut self) {
        self.now += 1;
        let targets = self.threads.iter().filter(|thread| is_target(thread));
        let woken: Vec<(u32, Task, bool)> = targets
            .map(|thread| (thread.tid, thread.task, thread.state == State::Running))
            .collect();
        for (tid, task, runs) in woken {
            self.note(
                0,
                Kind::Wakeup {
                    tid,
                    is_new: false,
                    runs,
                },
            );
            // SAFETY: their types.
            unsafe {
                (self.programs.set)(self.now, 0, self.threads[0].task);
                (self.programs.wakeup)(task);
            }
        }
    }

    /// What the model says, and what the programs say.
    fn assert_the_same(mut self, seed: u64) {
        self.wake_all();
        let logs = Logs {
            before: self.events.clone(),
            after: self.events.clone(),
            missed: 0,
        };
        let targets = self.threads.iter().filter(|thread| is_target(thread));
        let tids: Vec<u32> = targets.map(|thread| thread.tid).collect();
        let spans = tids
            .iter()
            .flat_map(|tid| run_queue::waits(&logs, *tid).expect("the same log"));
        let (hidden, seen): (Vec<_>, Vec<_>) = spans.partition(|span| span.is_hidden);
        let truth: Bracket = seen.iter().map(|span| span.pair).collect();
        let (mut count, mut sum_ns) = (0, 0);
        // SAFETY: its type.
        unsafe { (self.programs.counted)(&raw mut count, &raw mut sum_ns) };
        assert!(
            truth.least_ns == truth.most_ns && truth.holds(count, sum_ns),
            "seed {seed}: {count} waits, {sum_ns} ns; {truth:?}"
        );
        // SAFETY: its type.
        let unseen = unsafe { (self.programs.unseen)() };
        assert_eq!(unseen, hidden.len() as u64, "seed {seed}");
        let culprits = behind::culprits(&logs, &tids).expect("the same log");
        for (tid, truth) in culprits {
            let (mut waits, mut ns) = (0, 0);
            // SAFETY: its type.
            unsafe { (self.programs.caused)(tid, &raw mut waits, &raw mut ns) };
            assert!(
                truth.holds(waits, ns),
                "seed {seed}, thread {tid}: {waits} waits, {ns} ns; {truth:?}"
            );
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for thread in &self.threads {
            // SAFETY: made by `thread`, and used no more.
            unsafe { (self.programs.free_task)(thread.task) };
        }
    }
}

fn is_target(thread: &Thread) -> bool {
    thread.tid != 0 && !thread.is_shielded
}

#[test]
fn waits_and_whom_they_were_behind_are_the_models() {
    let dir = tempfile::tempdir().expect("a directory");
    let object = host::compile(dir.path(), "runqlat");
    for seed in 0..100 {
        let mut machine = Machine::new(&object, seed);
        for _ in 0..10_000 {
            machine.step();
        }
        machine.assert_the_same(seed);
    }
}
