//! Processes of all kinds under a tool's programs: they fork, start threads, execute, change names and cgroups, and exit.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;

use fastrand::Rng;

use crate::host::Host;
use crate::host::machine::Task as Body;
use crate::tasks::{Facts, KTHREAD, NAMESPACES, NO_EXEC, dress_as};

#[derive(Clone, Copy)]
pub(crate) struct Task {
    pub(crate) body: Body,
    pub(crate) facts: Facts,
    /// A place in `Population::cgroups`.
    pub(crate) cgroup: usize,
    /// Asked for by its number.
    pub(crate) is_asked: bool,
}

impl Task {
    /// Number in the tool's namespace; 0: it has none there.
    pub(crate) fn number(&self, is_inside: bool) -> u32 {
        match is_inside {
            true => self.facts.inner_pid,
            false => self.facts.pid,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    No,
    /// It is to be the tool's command, which is one from its exec on.
    FromExec,
    Yes,
}

/// A process of which something is left.
pub(crate) struct Process {
    /// Nobody else has it, now or later.
    pub(crate) serial: u32,
    pub(crate) parent: u32,
    pub(crate) wanted: Wanted,
    /// Those that run.
    pub(crate) tasks: Vec<Task>,
    /// Those that have exited, and are not freed.
    pub(crate) exited: Vec<Task>,
}

impl Process {
    /// The last one that is freed.
    pub(crate) fn leader(&self) -> &Task {
        let mut all = self.tasks.iter().chain(&self.exited);
        all.find(|task| task.facts.pid == task.facts.tgid)
            .expect("a leader")
    }
}

pub(crate) struct Cgroup {
    pub(crate) parent: Option<usize>,
    pub(crate) id: u64,
    at: *mut c_void,
}

pub(crate) struct Population {
    pub(crate) host: Host,
    pub(crate) rng: Rng,
    pub(crate) processes: Vec<Process>,
    pub(crate) cgroups: Vec<Cgroup>,
    /// The ends of some are hidden, and the state of such a task stays behind at its address.
    pub(crate) is_hashed: bool,
    pub(crate) is_inside: bool,
    pub(crate) is_followed: bool,
    pub(crate) cgroup_moves: u64,
    freed: Vec<Body>,
    serial: u32,
}

/// The process that gets orphans, and the tool's: they never exit.
pub(crate) const INIT: u32 = 0;
pub(crate) const TOOL: u32 = 1;

impl Population {
    pub(crate) fn new(object: &Path, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut population = Self {
            host: Host::load(object),
            processes: Vec::new(),
            cgroups: Vec::new(),
            is_hashed: rng.bool(),
            is_inside: rng.bool(),
            is_followed: rng.bool(),
            cgroup_moves: 0,
            freed: Vec::new(),
            serial: 0,
            rng,
        };
        // A root, some below it at random, and a chain as deep as the tool looks.
        for cgroup in 0..30 {
            let parent = match cgroup {
                0 => None,
                1..7 => Some(population.rng.usize(0..cgroup)),
                7 => Some(0),
                _ => Some(cgroup - 1),
            };
            population.add_cgroup(parent);
        }
        for _ in 0..12 {
            population.begin_process();
        }
        population
    }

    fn add_cgroup(&mut self, parent: Option<usize>) {
        let id = 100 + self.cgroups.len() as u64;
        let above = parent.map_or(ptr::null_mut(), |parent| self.cgroups[parent].at);
        let at = self.host.ask::<*mut c_void>("host_cgroup", (above, id));
        self.cgroups.push(Cgroup { parent, id, at });
    }

    fn body(&mut self) -> Body {
        self.freed
            .pop()
            .unwrap_or_else(|| self.host.ask::<Body>("host_body", ()))
    }

    /// Numbers are used again soon.
    fn free_number(&mut self) -> u32 {
        loop {
            let number = self.rng.u32(10..50);
            let tasks = |process: &'_ Process| [process.tasks.clone(), process.exited.clone()];
            let mut all = self.processes.iter().flat_map(tasks).flatten();
            if all.all(|task| task.facts.pid != number) {
                return number;
            }
        }
    }

    pub(crate) fn random_name(rng: &mut Rng) -> [u8; 16] {
        let mut name = [0; 16];
        for letter in &mut name[..rng.usize(1..16)] {
            *letter = *rng.choice(b"aab").expect("some");
        }
        name
    }

    /// One that was there before the tool looked.
    fn begin_process(&mut self) {
        let (number, body) = (self.free_number(), self.body());
        let is_kernel = self.processes.len() > 2 && self.rng.u32(0..4) == 0;
        let is_within = self.processes.len() <= 2 || self.rng.u32(0..4) > 0;
        let cgroup = self.rng.usize(0..self.cgroups.len());
        let facts = Facts {
            pid: number,
            tgid: number,
            inner_pid: if is_within || self.rng.bool() {
                number + 1_000
            } else {
                0
            },
            inner_namespace: NAMESPACES[usize::from(!is_within)],
            flags: if is_kernel { KTHREAD } else { 0 } | if self.rng.bool() { NO_EXEC } else { 0 },
            live: 1,
            start_time: u64::from(self.serial),
            leader: body,
            parent: body,
            cgroup: self.cgroups[cgroup].at,
            comm: Self::random_name(&mut self.rng),
        };
        let task = Task {
            body,
            facts,
            cgroup,
            is_asked: false,
        };
        let parent = if self.serial > TOOL && self.rng.bool() {
            TOOL
        } else {
            INIT
        };
        self.add_process(task, parent, Wanted::No);
        for _ in 0..self.rng.u32(0..3) {
            let last = self.processes.len() - 1;
            self.add_thread(last);
        }
    }

    fn add_process(&mut self, task: Task, parent: u32, wanted: Wanted) {
        self.processes.push(Process {
            serial: self.serial,
            parent,
            wanted,
            tasks: vec![task],
            exited: Vec::new(),
        });
        self.serial += 1;
        self.dress_all();
    }

    fn add_thread(&mut self, process: usize) {
        let (pid, body) = (self.free_number(), self.body());
        let mut task = *self.processes[process].leader();
        task.body = body;
        task.facts.pid = pid;
        task.facts.inner_pid = if task.facts.inner_pid == 0 {
            0
        } else {
            pid + 1_000
        };
        task.facts.flags |= NO_EXEC;
        task.is_asked = false;
        self.processes[process].tasks.push(task);
        self.dress_all();
    }

    /// Writes all tasks' facts into their memory.
    fn dress_all(&mut self) {
        let leaders: Vec<(u32, Body)> = self
            .processes
            .iter()
            .map(|it| (it.serial, it.leader().body))
            .collect();
        let leader_of = |serial| {
            let found = leaders.iter().find(|(it, _)| *it == serial);
            found.map(|(_, body)| *body)
        };
        for process in &mut self.processes {
            // Orphans are init's.
            let parent = leader_of(process.parent);
            let parent = parent.or_else(|| leader_of(INIT)).expect("it lives");
            let live = process.tasks.len() as u32;
            let leader = process.leader().body;
            for task in process.tasks.iter_mut().chain(&mut process.exited) {
                task.facts.live = live;
                task.facts.leader = leader;
                task.facts.parent = parent;
                task.facts.cgroup = self.cgroups[task.cgroup].at;
                dress(&self.host, task);
            }
        }
    }

    pub(crate) fn is_listed(&self, number: u32) -> bool {
        self.host.entry::<_, u8>("target_tgids", &number).is_some()
    }

    pub(crate) fn call(&self, name: &str, body: Body) {
        self.host.tell(name, (body,))
    }

    /// The iterator that looks at all tasks.
    pub(crate) fn look_at_all(&self) {
        for task in self.processes.iter().flat_map(|process| &process.tasks) {
            self.call("host_seed", task.body);
        }
    }

    pub(crate) fn fork(&mut self, process: usize) {
        let mut task = *self
            .rng
            .choice(&self.processes[process].tasks)
            .expect("a leader");
        let parent = task.body;
        let (number, body) = (self.free_number(), self.body());
        task.body = body;
        task.facts.pid = number;
        task.facts.tgid = number;
        task.facts.inner_pid = if task.facts.inner_pid == 0 {
            0
        } else {
            number + 1_000
        };
        task.facts.flags |= NO_EXEC;
        task.facts.start_time = u64::from(self.serial);
        task.is_asked = false;
        let wanted = match self.processes[process].wanted {
            Wanted::Yes if self.is_followed => Wanted::Yes,
            _ => Wanted::No,
        };
        let parent_serial = self.processes[process].serial;
        self.add_process(task, parent_serial, wanted);
        self.host.fork(parent, body);
    }

    pub(crate) fn start_thread(&mut self, process: usize) {
        self.add_thread(process);
        let tasks = &self.processes[process].tasks;
        self.host.fork(tasks[0].body, tasks[tasks.len() - 1].body);
    }

    /// Its other threads end before.
    pub(crate) fn exec(&mut self, process: usize) {
        while self.processes[process].tasks.len() > 1 {
            self.exit_thread(process);
        }
        self.processes[process].tasks[0].facts.flags &= !NO_EXEC;
        self.dress_all();
        self.rename(process, 0);
        self.executes(process);
    }

    /// A thread of it that runs has executed something.
    pub(crate) fn executes(&mut self, process: usize) {
        let process = &mut self.processes[process];
        if process.wanted == Wanted::FromExec {
            process.wanted = Wanted::Yes;
        }
        self.host
            .run("sched_process_exec", &[process.tasks[0].body as u64]);
    }

    pub(crate) fn rename(&mut self, process: usize, task: usize) {
        let name = Self::random_name(&mut self.rng);
        let task = &mut self.processes[process].tasks[task];
        let rename = [task.body as u64, name.as_ptr() as u64];
        self.host.run("task_rename", &rename);
        task.facts.comm = name;
        dress(&self.host, task);
    }

    /// One of its threads, which is not freed yet.
    pub(crate) fn thread_exits(&mut self, process: usize, thread: usize) {
        let task = self.processes[process].tasks.remove(thread);
        self.processes[process].exited.push(task);
        self.dress_all();
        self.host.run("sched_process_exit", &[task.body as u64]);
    }

    /// The last one of its threads; a process's last one is its leader.
    pub(crate) fn exit_thread(&mut self, process: usize) {
        let last = self.processes[process].tasks.len() - 1;
        self.thread_exits(process, last);
        let task = self.processes[process].exited.pop().expect("it has exited");
        if !self.is_hashed {
            self.call("host_free_task", task.body);
            return;
        }
        if self.rng.u32(0..3) == 0 {
            self.host.tell("host_waits_since", (task.body, 1_u64));
        } else {
            self.host.run("task_freed", &[task.body as u64]);
        }
        self.freed.push(task.body);
    }

    pub(crate) fn exit(&mut self, process: usize) {
        while !self.processes[process].tasks.is_empty() {
            self.exit_thread(process);
        }
        let gone = self.processes.remove(process).serial;
        for orphan in self.processes.iter_mut().filter(|it| it.parent == gone) {
            orphan.parent = INIT;
        }
        self.dress_all();
    }

    /// The leader alone is named.
    pub(crate) fn attach(&mut self, process: usize) {
        let cgroup = self.rng.usize(0..self.cgroups.len());
        for task in &mut self.processes[process].tasks {
            task.cgroup = cgroup;
        }
        self.dress_all();
        self.cgroup_moves += 1;
        let leader = self.processes[process].leader();
        let attach = [self.cgroups[cgroup].at as u64, 0, leader.body as u64];
        self.host.run("cgroup_attach_task", &attach);
    }
}

fn dress(host: &Host, task: &Task) {
    dress_as(host, task.body, &task.facts);
}
