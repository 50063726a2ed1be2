//! A command and its children, as profile keeps the list of them: until a process is no more.

#[expect(dead_code, reason = "it has more for tests of machines")]
mod host;
#[expect(dead_code, reason = "it has more for runqlat's targets")]
#[path = "host/tasks.rs"]
mod tasks;

use std::path::Path;
use std::ptr;

use fastrand::Rng;
use host::Host;
use host::machine::Task as Body;
use tasks::{Facts, NAMESPACES, NO_EXEC, dress_as};

const TOOL: u32 = 1;
const NUMBERS: u32 = 40;

/// Number in the tool's own namespace: others have it outside.
fn inner(number: u32) -> u32 {
    NUMBERS - number
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    No,
    FromExec,
    Yes,
}

struct Process {
    number: u32,
    /// It has a number in the tool's namespace.
    is_within: bool,
    wanted: Wanted,
    /// Its threads that run, the leader first.
    running: Vec<(u32, Body)>,
    /// Its threads that have exited, and are not freed.
    exited: Vec<(u32, Body)>,
}

struct Family {
    host: Host,
    rng: Rng,
    is_inside: bool,
    processes: Vec<Process>,
}

impl Family {
    fn new(object: &Path, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut family = Self {
            host: Host::load(object),
            is_inside: rng.bool(),
            processes: Vec::new(),
            rng,
        };
        family.add(TOOL, family.is_inside, Wanted::No);
        for _ in 0..4 {
            let (number, is_within) = (family.free_number(), family.rng.bool());
            family.add(number, is_within, Wanted::No);
        }
        let tool = family.processes[0].running[0].1;
        let own_tgid = family.told_number(&family.processes[0]);
        family
            .host
            .tell("host_want", (own_tgid, NAMESPACES[0], tool));

        // The tool's command, which has executed nothing yet.
        let number = family.free_number();
        family.add(number, true, Wanted::FromExec);
        let told = family.told_number(&family.processes[5]);
        family.host.tell("host_want_process", (told,));
        family
    }

    /// 0: it has none where the tool is.
    fn told_number(&self, process: &Process) -> u32 {
        match (self.is_inside, process.is_within) {
            (false, _) => process.number,
            (true, true) => inner(process.number),
            (true, false) => 0,
        }
    }

    /// Numbers are used again soon.
    fn free_number(&mut self) -> u32 {
        loop {
            let number = self.rng.u32(2..NUMBERS);
            let tasks = |process: &'_ Process| [process.running.clone(), process.exited.clone()];
            let mut all = self.processes.iter().flat_map(tasks).flatten();
            if all.all(|(other, _)| other != number) {
                return number;
            }
        }
    }

    fn body(&self) -> Body {
        self.host.ask::<Body>("host_body", ())
    }

    fn add(&mut self, number: u32, is_within: bool, wanted: Wanted) {
        let process = Process {
            number,
            is_within,
            wanted,
            running: vec![(number, self.body())],
            exited: Vec::new(),
        };
        self.processes.push(process);
        self.dress(self.processes.len() - 1);
    }

    /// Writes a process's facts into its tasks' memory.
    fn dress(&self, at: usize) {
        let process = &self.processes[at];
        let tasks = || process.running.iter().chain(&process.exited);
        let leader = tasks().find(|(tid, _)| *tid == process.number);
        for (tid, body) in tasks() {
            let facts = Facts {
                pid: *tid,
                tgid: process.number,
                inner_pid: if process.is_within { inner(*tid) } else { 0 },
                inner_namespace: NAMESPACES[0],
                flags: NO_EXEC,
                live: process.running.len() as u32,
                start_time: 0,
                leader: leader.expect("it is freed last").1,
                parent: ptr::null_mut(),
                cgroup: ptr::null_mut(),
                comm: *b"a thread\0\0\0\0\0\0\0\0",
            };
            dress_as(&self.host, *body, &facts);
        }
    }

    fn tell(&self, name: &str, body: Body) {
        self.host.tell(name, (body,))
    }

    /// One of its threads forks.
    fn fork(&mut self, at: usize) {
        let number = self.free_number();
        let parent = &self.processes[at];
        let (is_within, wanted) = (parent.is_within, parent.wanted);
        let thread = self.rng.usize(..parent.running.len());
        let by = parent.running[thread].1;
        let wanted = if wanted == Wanted::Yes {
            Wanted::Yes
        } else {
            Wanted::No
        };
        self.add(number, is_within, wanted);
        self.host
            .fork(by, self.processes[self.processes.len() - 1].running[0].1);
    }

    fn start_thread(&mut self, at: usize) {
        let (number, body) = (self.free_number(), self.body());
        let by = self.processes[at].running[0].1;
        self.processes[at].running.push((number, body));
        self.dress(at);
        self.host.fork(by, body);
    }

    fn exec(&mut self, at: usize) {
        if self.processes[at].wanted == Wanted::FromExec {
            self.processes[at].wanted = Wanted::Yes;
        }
        let leader = self.processes[at].running[0].1 as u64;
        self.host.run("sched_process_exec", &[leader]);
    }

    /// A thread exits, any of the process's. Inside a namespace the last one's number is gone by the time it is freed.
    fn exit(&mut self, at: usize) {
        let thread = self.rng.usize(..self.processes[at].running.len());
        let task = self.processes[at].running.remove(thread);
        self.processes[at].exited.push(task);
        self.dress(at);
        self.host.run("sched_process_exit", &[task.1 as u64]);
        if self.is_inside && self.processes[at].running.is_empty() {
            self.processes[at].wanted = Wanted::No;
        }
    }

    /// A thread that has exited is freed; the leader is the last one.
    fn free(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let is_last = process.running.is_empty() && process.exited.len() == 1;
        let number = process.number;
        let may_go = |(tid, _): &(u32, Body)| is_last || *tid != number;
        let Some(thread) = process.exited.iter().position(may_go) else {
            return;
        };
        let task = process.exited.remove(thread);
        self.host.run("sched_process_free", &[task.1 as u64]);
        self.tell("host_free_task", task.1);
        if is_last {
            let gone = self.processes.remove(at);
            assert!(!self.is_listed(self.told_number(&gone)), "{number} is gone");
        }
    }

    fn is_listed(&self, number: u32) -> bool {
        self.host.entry::<_, u8>("target_tgids", &number).is_some()
    }

    fn assert_listed(&self, case: &str) {
        for process in &self.processes {
            let is_listed = self.is_listed(self.told_number(process));
            assert_eq!(
                is_listed,
                process.wanted != Wanted::No,
                "{case}, {}",
                process.number
            );
            for (tid, body) in process.running.iter().chain(&process.exited) {
                let is_target = self.host.ask::<bool>("host_is_target", (*body,));
                assert_eq!(is_target, process.wanted == Wanted::Yes, "{case}, {tid}");
            }
        }
    }

    fn act(&mut self) {
        let at = self.rng.usize(1..self.processes.len());
        let runs = !self.processes[at].running.is_empty();
        let is_small = self.processes.len() < 8;
        match self.rng.u32(..8) {
            0 | 1 if runs && is_small => self.fork(at),
            2 if runs && self.processes[at].running.len() < 3 => self.start_thread(at),
            3 if runs => self.exec(at),
            // The command is the first of its family, and goes late.
            4 if runs && (at != 5 || self.rng.u32(..8) == 0) => self.exit(at),
            _ => self.free(at),
        }
        if self.processes.len() < 4 {
            self.fork(0);
        }
    }
}

#[test]
fn command_and_its_children_are_listed_as_long_as_they_are_there() {
    let object = host::compile("profile_follow");
    for seed in 0..200 {
        let mut family = Family::new(&object, seed);
        for step in 0..300 {
            family.assert_listed(&format!("seed {seed}, step {step}"));
            family.act();
        }
    }
}
