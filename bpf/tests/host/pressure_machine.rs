//! Threads and CPUs of the replay of pressure, and what the programs are told.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

use bpf::pressure::types::{pressure_config, target_config};
use fastrand::Rng;

use crate::host::Host;
use crate::members::{CPU, Cpu, IO, Member};
use crate::stacks::Stack;
use crate::stock::Account;
use crate::told::Told;

pub(crate) type Pointer = *mut c_void;

pub(crate) const CPUS: usize = 8;
pub(crate) const KTHREAD: u32 = 0x0020_0000;
/// The tool itself.
const TOOL: u32 = 11;

/// `struct host_facts` of host/pressure.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Facts {
    pub(crate) comm: [u8; 16],
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) state: u32,
    pub(crate) cpu: u32,
    pub(crate) runs: bool,
    pub(crate) queued: bool,
    pub(crate) delayed: bool,
    pub(crate) io: bool,
    pub(crate) memory: bool,
    pub(crate) throttled: bool,
    pub(crate) signalled: bool,
    pub(crate) stacked: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) psi: bool,
    pub(crate) stacks: bool,
    pub(crate) walk_on_exit: bool,
}

/// The fate of a thread that leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    Runnable,
    Asleep,
    Dead,
}

#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) task: Pointer,
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    pub(crate) cgroup_id: u64,
    pub(crate) start_time: u64,
    pub(crate) is_kernel: bool,
    pub(crate) facts: Facts,
    pub(crate) member: Option<Member>,
    /// Forked, and not yet woken.
    pub(crate) is_new: bool,
    pub(crate) is_ending: bool,
    pub(crate) is_gone: bool,
    /// Waited for a CPU and for I/O, as the thread itself knows, and waits of others while it ran.
    pub(crate) truth_ns: [u64; 3],
    /// The programs have seen it begin to run.
    pub(crate) is_seen: bool,
}

impl Thread {
    pub(crate) fn switches(&self) -> u64 {
        self.facts.voluntary + self.facts.involuntary
    }

    /// A sleeper may stay on its queue for a while.
    pub(crate) fn is_queued(&self) -> bool {
        self.facts.queued && !self.facts.delayed
    }

    pub(crate) fn waits(&self) -> bool {
        self.is_queued() && !self.facts.runs && !self.is_gone
    }

    pub(crate) fn sleeps(&self) -> bool {
        !self.facts.queued && !self.facts.runs && !self.is_gone && !self.is_new
    }
}

pub(crate) struct Machine {
    pub(crate) host: Host,
    pub(crate) rng: Rng,
    pub(crate) what: String,
    pub(crate) now: u64,
    pub(crate) asked: Asked,
    pub(crate) hash_locks: bool,
    /// Nothing is hidden, and no CPU's clock is behind.
    pub(crate) is_clean: bool,
    pub(crate) is_old: bool,
    pub(crate) threads: Vec<Thread>,
    pub(crate) idle: Pointer,
    pub(crate) running: [Option<usize>; CPUS],
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) held: [bool; CPUS],
    /// No scratch, no budget.
    pub(crate) lacks: (bool, bool),
    pub(crate) is_full: bool,
    pub(crate) edge_ns: u64,
    pub(crate) previous_edge_ns: u64,
    pub(crate) half: u32,
    pub(crate) stacks: BTreeMap<Stack, u64>,
    pub(crate) told: Told,
}

impl Machine {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let asked = Asked {
            psi: rng.u32(0..4) > 0,
            stacks: rng.u32(0..3) > 0,
            walk_on_exit: rng.bool(),
        };
        let hash_locks = rng.bool();
        let config = pressure_config {
            psi: asked.psi.into(),
            stacks: asked.stacks.into(),
            walk_on_exit: asked.walk_on_exit.into(),
        };
        let targets = target_config {
            own_tgid: TOOL,
            own_since_ns: u64::MAX,
            ..target_config::default()
        };
        host.set("config", &config);
        host.set("targets", &targets);
        host.set("locks_in_hash", &u32::from(hash_locks));
        let is_clean = rng.u32(0..3) == 0;
        let mut machine = Self {
            host,
            what: format!("seed {seed}, {asked:?}, clean {is_clean}"),
            now: 1_000,
            asked,
            hash_locks,
            is_clean,
            is_old: rng.bool(),
            threads: Vec::new(),
            idle: ptr::null_mut(),
            running: [None; CPUS],
            cpus: vec![Cpu::default(); CPUS],
            held: [false; CPUS],
            lacks: (false, false),
            is_full: false,
            edge_ns: 0,
            previous_edge_ns: 0,
            half: 0,
            stacks: BTreeMap::new(),
            told: Told::default(),
            rng,
        };
        machine.idle = machine.task(0, 0, 0, 0, ptr::null_mut());
        machine.populate();
        machine
    }

    fn task(&self, tid: u32, flags: u32, start: u64, cgroup: u64, leader: Pointer) -> Pointer {
        self.host
            .ask::<Pointer>("host_thread", (tid, flags, start, cgroup, leader))
    }

    /// Returns where it is.
    pub(crate) fn thread(&mut self, tid: u32, flags: u32, leader: Option<usize>) -> usize {
        let above = leader.map_or(ptr::null_mut(), |at| self.threads[at].task);
        let (start_time, cgroup_id) = (self.now + u64::from(tid), self.rng.u64(1..5));
        let mut facts = Facts {
            cpu: self.rng.u32(0..CPUS as u32),
            ..Facts::default()
        };
        facts.comm[0] = self.rng.lowercase() as u8;
        self.threads.push(Thread {
            task: self.task(tid, flags, start_time, cgroup_id, above),
            tid,
            tgid: leader.map_or(tid, |at| self.threads[at].tgid),
            cgroup_id,
            start_time,
            is_kernel: flags > 0,
            facts,
            member: None,
            is_new: false,
            is_ending: false,
            is_gone: false,
            truth_ns: [0; 3],
            is_seen: false,
        });
        self.threads.len() - 1
    }

    /// The tool, kernel threads and processes, at all that they may do.
    fn populate(&mut self) {
        self.thread(TOOL, 0, None);
        for tid in 30..33 {
            self.thread(tid, KTHREAD, None);
        }
        for tid in (100..180).step_by(10) {
            let leader = self.thread(tid, 0, None);
            self.thread(tid + 1, 0, Some(leader));
        }
        for at in 0..self.threads.len() {
            let (draw, cpu) = (self.rng.u32(0..4), self.threads[at].facts.cpu as usize);
            let facts = &mut self.threads[at].facts;
            facts.minor_faults = 10;
            facts.read_bytes = 20;
            match draw {
                0 if self.running[cpu].is_none() => {
                    facts.runs = true;
                    facts.queued = true;
                    self.running[cpu] = Some(at);
                }
                1 => {
                    facts.queued = true;
                    facts.io = self.rng.bool();
                }
                _ => {
                    facts.state = 2;
                    facts.io = draw == 2;
                    facts.memory = draw == 3 && self.rng.bool();
                    facts.delayed = self.rng.u32(0..4) == 0;
                    facts.queued = facts.delayed;
                }
            }
        }
        self.show_all();
        self.set_user_space();
        for at in 0..self.threads.len() {
            self.host.tell("host_seed", (self.threads[at].task,));
            if self.threads[at].tgid != TOOL {
                self.joins(at, false);
            }
        }
    }

    pub(crate) fn leader_of(&self, at: usize) -> usize {
        let tgid = self.threads[at].tgid;
        let leader = self.threads.iter().position(|it| it.tid == tgid);
        leader.expect("its memory is there as long as it has threads")
    }

    pub(crate) fn usage(&self, at: usize) -> Account {
        let facts = &self.threads[at].facts;
        Account {
            read_bytes: facts.read_bytes,
            written_bytes: facts.written_bytes,
            faults: facts.minor_faults + facts.major_faults,
            ..Account::default()
        }
    }

    /// The kernel's word on all threads.
    pub(crate) fn show_all(&self) {
        for thread in self.threads.iter().filter(|it| !it.is_gone) {
            self.host.tell("host_is", (thread.task, &thread.facts));
        }
    }

    /// Programs that run next do so on this CPU, at that time.
    pub(crate) fn set(&self, now: u64, cpu: usize) {
        let task = self.running[cpu].map_or(self.idle, |at| self.threads[at].task);
        self.host.tell("host_set", (now, cpu as u32, task));
    }

    pub(crate) fn set_user_space(&self) {
        self.set(self.now, 0);
    }

    /// Time passes, for those that wait and those behind whom they do.
    pub(crate) fn passes(&mut self, ns: u64) {
        self.now += ns;
        let mut waiting = [0; CPUS];
        for thread in self.threads.iter_mut().filter(|it| !it.is_gone) {
            if thread.waits() && !thread.is_new {
                thread.truth_ns[CPU] += ns;
                let counts = thread.member.is_some() && !thread.facts.throttled;
                waiting[thread.facts.cpu as usize] += u64::from(counts);
            }
            let is_asleep = !thread.is_queued() && !thread.facts.runs;
            thread.truth_ns[IO] += if is_asleep && thread.facts.io { ns } else { 0 };
        }
        for at in self.running.into_iter().flatten() {
            let thread = &mut self.threads[at];
            let cpu = thread.facts.cpu as usize;
            thread.truth_ns[1] += if thread.is_seen { ns * waiting[cpu] } else { 0 };
        }
    }
}
