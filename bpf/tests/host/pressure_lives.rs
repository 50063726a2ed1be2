//! Random orders of what threads do, for the replay of pressure.

use crate::machine::{CPUS, Leaves, Machine};

/// Programs by event; reclaim of five kinds begins and ends.
const PROGRAMS: [&str; 15] = [
    "sched_wakeup",
    "sched_wakeup_new",
    "account_exit",
    "block_bio_queue",
    "block_rq_error",
    "direct_reclaim_begins",
    "memcg_reclaim_begins",
    "compaction_begins",
    "node_reclaim_begins",
    "kswapd_begins",
    "direct_reclaim_ends",
    "memcg_reclaim_ends",
    "compaction_ends",
    "node_reclaim_ends",
    "kswapd_ends",
];
/// Places among these.
const WAKEUP: u32 = 0;
const WAKEUP_NEW: u32 = 1;
const EXIT: u32 = 2;
const BIO: u32 = 3;
const ERROR: u32 = 4;
const BEGINS: u32 = 5;
const ENDS: u32 = 10;
/// Kinds of reclaim; those from here on are not marked when they begin.
const RECLAIMS: u32 = 5;
const UNMARKED: u32 = 3;

/// States of tasks.
const RUNNING: u32 = 0;
const INTERRUPTIBLE: u32 = 1;
const UNINTERRUPTIBLE: u32 = 2;
const DEAD: u32 = 0x80;
/// One that ps does not know.
const RTLOCK: u32 = 0x1000;

impl Machine {
    /// No scratch, no budget, a lock that nobody can wait for.
    pub(crate) fn lacks_something(&mut self) {
        if self.rng.u32(0..60) > 0 {
            return;
        }
        self.lacks = (self.rng.u32(0..4) == 0, self.rng.u32(0..4) == 0);
        let cpu = self.rng.usize(0..CPUS);
        self.held[cpu] = self.hash_locks && !self.held[cpu] && self.rng.u32(0..4) == 0;
        self.host.tell("host_lack", (self.lacks.0, self.lacks.1));
        if self.hash_locks {
            self.host.tell("host_hold", (cpu as u32, self.held[cpu]));
        }
    }

    fn is_hidden(&mut self) -> bool {
        !self.is_clean && self.rng.u32(0..30) == 0
    }

    /// Clocks of CPUs may differ.
    fn time(&mut self) -> u64 {
        match self.is_clean || self.rng.u32(0..20) > 0 {
            true => self.now,
            false => self.now - self.rng.u64(0..200),
        }
    }

    pub(crate) fn step(&mut self) {
        let at = self.rng.usize(0..self.threads.len());
        let cpu = self.rng.usize(0..CPUS);
        let thread = &self.threads[at];
        match self.rng.u32(0..16) {
            0..6 => self.switches_to_another(cpu),
            6..9 if thread.sleeps() || thread.facts.delayed => self.wakes(at),
            9 if thread.waits() => self.migrates(at, cpu),
            // One that is too late, or comes half-way to sleep.
            10 if thread.waits() || thread.facts.runs => self.happens(WAKEUP, at),
            11 if self.threads.iter().filter(|it| !it.is_gone).count() < 30 => self.forks(cpu),
            12 if thread.is_new => self.wakes_new(at),
            13 if !thread.is_gone => self.uses(at),
            14 => {
                self.told.errors += 1;
                self.happens(ERROR, at);
            }
            _ => {
                if let Some(at) = self.running[cpu] {
                    self.runs(at);
                }
            }
        }
    }

    /// The event, where its program runs: of a thread, on its CPU if it runs.
    fn happens(&mut self, event: u32, at: usize) {
        let now = self.time();
        let is_hidden = event != ERROR && self.is_hidden();
        let is_own = matches!(event, EXIT | BIO | BEGINS..);
        let cpu = match is_own {
            true => self.threads[at].facts.cpu as usize,
            false => self.rng.usize(0..CPUS),
        };
        if is_hidden {
            return;
        }
        self.show_all();
        self.set(now, cpu);
        let task = self.threads[at].task as u64;
        self.host.run(PROGRAMS[event as usize], &[task]);
        match event {
            WAKEUP | WAKEUP_NEW => self.is_woken(at, now),
            EXIT => self.exits(at, now),
            BIO => self.submits_io(at),
            BEGINS..ENDS => self.begins_reclaim(at, event - BEGINS < UNMARKED, now),
            ENDS.. => self.ends_reclaim(at, now),
            _ => {}
        }
    }

    fn switches_to_another(&mut self, cpu: usize) {
        let prev = self.running[cpu];
        let is_there = |at: &usize| {
            let thread = &self.threads[*at];
            thread.waits() && thread.facts.cpu as usize == cpu
        };
        let queued: Vec<usize> = (0..self.threads.len()).filter(is_there).collect();
        let next = if self.rng.u32(0..6) == 0 {
            None
        } else {
            self.rng.choice(queued)
        };
        if prev.is_none() && next.is_none() {
            return;
        }
        let (leaves, preempt) = match prev {
            Some(at) => self.leaves_cpu(at),
            None => (Leaves::Runnable, false),
        };
        let state = prev.map_or(0, |at| self.threads[at].facts.state);
        let (now, is_hidden) = (self.time(), self.is_hidden());
        if !is_hidden {
            self.show_all();
            self.set(now, cpu);
            let task = |at: Option<usize>| at.map_or(self.idle, |at| self.threads[at].task);
            let state = (!self.is_old).then_some(state);
            self.host.switch(preempt, [prev, next].map(task), state);
            self.has_switched(cpu, (prev, leaves), next, now);
        }
        if let Some(at) = prev {
            self.has_left(at, leaves);
        }
        self.running[cpu] = next;
        if let Some(at) = next {
            let thread = &mut self.threads[at];
            thread.facts.runs = true;
            // Its word on what it slept for stays until then.
            thread.facts.io = false;
            thread.facts.state = RUNNING;
            thread.facts.throttled = false;
            thread.is_seen = !is_hidden;
        }
        self.ends_switch(cpu, next);
    }

    /// The kernel's own account of a switch comes first.
    fn leaves_cpu(&mut self, at: usize) -> (Leaves, bool) {
        let (draw, is_signalled) = (self.rng.u32(0..12), self.rng.u32(0..6) == 0);
        let facts = &mut self.threads[at].facts;
        facts.signalled = is_signalled;
        if self.threads[at].is_ending {
            let facts = &mut self.threads[at].facts;
            facts.state = DEAD;
            facts.signalled = false;
            facts.queued = false;
            facts.voluntary += 1;
            return (Leaves::Dead, false);
        }
        let facts = &mut self.threads[at].facts;
        let (state, stays) = match draw {
            0..3 => (RUNNING, true),
            3 => (INTERRUPTIBLE, true),
            4 => (RTLOCK, is_signalled),
            5 if is_signalled => (INTERRUPTIBLE, true),
            6..9 => (UNINTERRUPTIBLE, false),
            _ => (INTERRUPTIBLE, false),
        };
        facts.state = state;
        facts.io = !stays && draw < 8;
        facts.throttled = stays && draw == 0;
        facts.queued = stays;
        if stays {
            facts.involuntary += 1;
            (Leaves::Runnable, draw == 3)
        } else {
            facts.voluntary += 1;
            facts.delayed = draw % 2 > 0 && is_signalled;
            facts.queued = facts.delayed;
            (Leaves::Asleep, false)
        }
    }

    fn has_left(&mut self, at: usize, leaves: Leaves) {
        let thread = &mut self.threads[at];
        thread.facts.runs = false;
        thread.is_seen = false;
        // Nobody reaps a leader whose threads are there.
        if leaves == Leaves::Dead {
            thread.is_gone = true;
            if thread.tid == thread.tgid {
                return;
            }
            self.host.tell("host_free_task", (thread.task,));
        }
    }

    /// The thread that was switched in comes back from the scheduler.
    fn ends_switch(&mut self, cpu: usize, next: Option<usize>) {
        if !self.asked.walk_on_exit || !self.asked.stacks || self.is_hidden() {
            return;
        }
        let is_switch = self.is_clean || self.rng.u32(0..20) > 0;
        self.show_all();
        self.set(self.now, cpu);
        self.host.run("sched_exit", &[is_switch.into()]);
        if let Some(at) = next {
            self.leaves_kernel(at, is_switch);
        }
    }

    fn wakes(&mut self, at: usize) {
        let cpu = self.rng.u32(0..CPUS as u32);
        let facts = &mut self.threads[at].facts;
        // One that is on its queue still stays there.
        if !facts.delayed {
            facts.cpu = cpu;
            self.is_moved(at, cpu);
        }
        let facts = &mut self.threads[at].facts;
        facts.delayed = false;
        facts.queued = true;
        facts.state = RUNNING;
        self.happens(WAKEUP, at);
    }

    fn wakes_new(&mut self, at: usize) {
        self.threads[at].is_new = false;
        self.threads[at].facts.queued = true;
        self.happens(WAKEUP_NEW, at);
    }

    fn migrates(&mut self, at: usize, cpu: usize) {
        self.is_moved(at, cpu as u32);
        self.threads[at].facts.cpu = cpu as u32;
    }

    fn is_moved(&mut self, at: usize, cpu: u32) {
        let now = self.time();
        if self.is_hidden() {
            return;
        }
        let by = self.rng.usize(0..CPUS);
        self.show_all();
        self.set(now, by);
        let migrate = [self.threads[at].task as u64, cpu.into()];
        self.host.run("sched_migrate_task", &migrate);
        self.is_migrated(at, cpu as usize, now);
    }

    fn forks(&mut self, cpu: usize) {
        let Some(parent) = self.running[cpu] else {
            return;
        };
        let is_ending = self.threads[parent].is_ending;
        if is_ending || self.threads[parent].is_kernel || self.threads[parent].member.is_none() {
            return;
        }
        let leader = self.leader_of(parent);
        let leader = (self.rng.bool() && !self.threads[leader].is_gone).then_some(leader);
        let tid = 1_000 + self.threads.len() as u32;
        let child = self.thread(tid, 0, leader);
        self.threads[child].is_new = true;
        self.show_all();
        self.set(self.now, cpu);
        self.host
            .fork(self.threads[parent].task, self.threads[child].task);
        self.joins(child, true);
    }

    fn uses(&mut self, at: usize) {
        let (draw, much) = (self.rng.u32(0..5), self.rng.u64(1..100));
        let facts = &mut self.threads[at].facts;
        match draw {
            0 => facts.minor_faults += much,
            1 => facts.major_faults += much,
            2 => facts.read_bytes += much,
            3 => facts.written_bytes += much,
            _ => facts.comm[0] = self.rng.lowercase() as u8,
        }
    }

    /// A thread's doings on its CPU.
    fn runs(&mut self, at: usize) {
        let (kind, draw) = (self.rng.u32(0..RECLAIMS), self.rng.u32(0..12));
        if self.threads[at].is_ending {
            return;
        }
        match draw {
            0..3 => {
                // Reclaim that its owner asked for is none that it waits for.
                self.threads[at].facts.memory |= kind < UNMARKED && self.rng.u32(0..4) > 0;
                self.happens(BEGINS + kind, at);
                self.threads[at].facts.memory |= self.rng.bool();
            }
            3..6 => {
                self.happens(ENDS + kind, at);
                self.threads[at].facts.memory = false;
            }
            6 => self.threads[at].facts.memory = self.rng.bool(),
            7..11 => {
                self.threads[at].facts.stacked = self.rng.u32(0..4) == 0;
                self.happens(BIO, at);
            }
            _ if self.threads.len() > 24 && self.threads[at].member.is_some() => {
                self.threads[at].is_ending = true;
                self.happens(EXIT, at);
            }
            _ => {}
        }
    }
}
