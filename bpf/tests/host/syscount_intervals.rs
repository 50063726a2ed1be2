//! Random orders of events and edges for the replay of syscount.

use crate::asked::{COMMAND, Whom};
use crate::calls::Calls;
use crate::host::machine::Task;
use crate::rows::Tables;

const INTERVALS: usize = 5;

impl Calls {
    pub(crate) fn play(&mut self, seed: u64) {
        for at in 0..self.threads.len() {
            self.show(at, self.now);
            self.call("host_seed", self.threads[at].task);
            if self.is_target(&self.threads[at]) {
                self.joins(at, false);
            }
        }
        let what = format!("seed {seed}, {:?}", self.asked);
        self.steps(300);
        self.window.0 = self.now + self.rng.u64(1..5_000);
        self.tell_window();
        self.begin_at_start();
        let is_full = self.rng.u32(0..4) == 0;
        let mut spent_ns: u64 = 0;
        for interval in 0..INTERVALS {
            let is_last = interval + 1 == INTERVALS;
            self.steps(300);
            if !is_last {
                spent_ns = spent_ns.wrapping_add(self.relieve(&what));
            }
            self.steps(200);
            if is_last && is_full {
                self.is_full = true;
                self.host.tell("host_fill", ());
            }
            if is_last {
                self.closes_at();
            }
            self.steps(300);
            if is_last && !is_full && self.rng.bool() {
                spent_ns = spent_ns.wrapping_add(self.relieve(&what));
                self.steps(100);
            }
            spent_ns = spent_ns.wrapping_add(self.turn(is_last, &what));
        }
        self.assert_told(&what);
        if !self.is_full && self.asked.config.failures == 0 {
            assert_eq!(spent_ns, self.spans_ns(), "{what}: intervals add up");
        }
    }

    /// Time in calls between the window's edges.
    fn spans_ns(&self) -> u64 {
        let open = self.threads.iter().filter_map(|it| it.member?.call);
        let open = open.map(|call| {
            call.told_ns
                .saturating_sub(call.begin_ns.max(self.window.0))
        });
        self.spent_ns + open.sum::<u64>()
    }

    fn tell_window(&self) {
        let (start_ns, end_ns) = self.window;
        let (half, open_half) = (self.half, self.open_half);
        self.host.tell(
            "host_window",
            (
                start_ns,
                end_ns,
                self.edge_ns,
                half,
                open_half,
                self.is_open_taken,
            ),
        );
    }

    /// Calls that begin in the very moment in which the window does.
    fn begin_at_start(&mut self) {
        self.now = self.window.0;
        for at in 0..self.threads.len() {
            let thread = &self.threads[at];
            if thread.makes_calls() && thread.runs && !thread.in_call {
                self.enters(at);
            }
        }
    }

    /// The end is known before it comes.
    fn closes_at(&mut self) {
        self.open_half = self.half;
        self.edge_ns = self.now + self.rng.u64(1..400_000);
        self.window.1 = self.edge_ns;
        self.is_open_taken = false;
        self.tell_window();
    }

    /// Rows are taken amid an interval. Returns the time that they have.
    fn relieve(&mut self, what: &str) -> u64 {
        let ended = self.half;
        self.half = 1 - ended;
        if self.window.1 > 0 {
            self.open_half = self.half;
        }
        self.tell_window();
        self.take(ended, what)
    }

    fn take(&mut self, half: u32, what: &str) -> u64 {
        let told = Tables::told(&self.host, half);
        let expected = std::mem::take(&mut self.tables[half as usize]);
        assert_eq!(told, expected, "{what}");
        told.time_ns()
    }

    /// An interval ends; threads go on meanwhile.
    fn turn(&mut self, is_last: bool, what: &str) -> u64 {
        let ended = self.half;
        self.open_half = ended;
        self.half = 1 - ended;
        if is_last {
            self.now = self.now.max(self.window.1);
        } else {
            self.tell_window();
            self.steps(3);
            self.edge_ns = self.now;
            self.is_open_taken = false;
        }
        self.tell_window();
        let began_ns = self.edge_ns.saturating_sub(2_000);
        let mut unvisited: Vec<Task> = self.threads.iter().map(|it| it.task).collect();
        self.rng.shuffle(&mut unvisited);
        while let Some(task) = unvisited.pop() {
            let Some(at) = self.threads.iter().position(|it| it.task == task) else {
                continue;
            };
            if self.rng.u32(0..6) == 0 {
                self.returns_late(at, began_ns);
            }
            self.is_visited(at);
            if self.rng.bool() {
                self.steps(1);
            }
        }
        self.is_open_taken = true;
        self.tell_window();
        self.take(ended, what)
    }

    /// A program that began before the edge ends after it.
    fn returns_late(&mut self, at: usize, least_ns: u64) {
        let thread = &mut self.threads[at];
        let may = thread.in_call && thread.runs && !thread.dead;
        let least_ns = match thread.call() {
            Some(call) if may && call.number.is_some() => {
                least_ns.max(call.begin_ns).max(call.told_ns)
            }
            _ => return,
        };
        if least_ns < self.edge_ns {
            let is_at_edge = self.rng.bool();
            let least_ns = if is_at_edge {
                self.edge_ns - 1
            } else {
                least_ns
            };
            let ns = self.rng.u64(least_ns..self.edge_ns) + 1;
            if ns != self.window.1 {
                self.returns(at, ns);
            }
        }
    }

    fn steps(&mut self, most: u32) {
        for _ in 0..self.rng.u32(0..=most) {
            self.now += if self.rng.u32(0..20) == 0 {
                self.rng.u64(1..90_000)
            } else {
                self.rng.u64(1..2_000)
            };
            // A call that returns at that very moment is in no interval.
            self.now += u64::from(self.now == self.window.1);
            let at = self.rng.usize(0..self.threads.len());
            self.step(at);
        }
    }

    fn step(&mut self, at: usize) {
        let thread = &mut self.threads[at];
        let draw = self.rng.u32(0..12);
        if thread.dead {
            if draw < 4 && (thread.tid != thread.tgid || self.is_alone(at)) {
                self.ends(at);
            }
        } else if !thread.makes_calls() {
            if draw == 0 {
                self.renames(at);
            }
        } else if !thread.runs {
            thread.runs = true;
        } else if thread.in_call {
            self.step_in_call(at, draw);
        } else {
            self.step_outside(at, draw);
        }
    }

    fn step_in_call(&mut self, at: usize, draw: u32) {
        match draw {
            0..5 => {
                if draw == 0 {
                    // A signal's return leaves the registers so.
                    self.threads[at].number = -1;
                }
                // Clocks of CPUs may differ.
                let behind_ns = if draw == 1 { self.rng.u64(0..300) } else { 0 };
                let least_ns = if self.now > self.edge_ns {
                    self.edge_ns + 1
                } else {
                    0
                };
                let ns = (self.now - behind_ns).max(least_ns);
                self.returns(at, ns + u64::from(ns == self.window.1));
            }
            5..8 => {
                let thread = &mut self.threads[at];
                thread.runs = false;
                thread.sleeps += 1;
                if let Some(call) = thread.call() {
                    call.slept = true;
                }
            }
            8 => self.threads[at].runs = false,
            9 if self.threads.len() < 40 => self.forks(at),
            10 => self.renames(at),
            _ if self.threads.len() > 20 && self.threads[at].tgid != COMMAND => {
                self.threads[at].dead = true;
                self.threads[at].runs = false;
            }
            _ => self.executes(at),
        }
    }

    fn step_outside(&mut self, at: usize, draw: u32) {
        let thread = &mut self.threads[at];
        match draw {
            0..8 => self.enters(at),
            // An interrupt, after which somebody else runs.
            8 => {
                thread.number = -1;
                thread.runs = false;
            }
            9 if thread.call().is_none() => {
                thread.number = 1;
                self.returns(at, self.now);
            }
            _ => self.renames(at),
        }
    }

    fn forks(&mut self, parent: usize) {
        self.last_tid += 1;
        let leader = self.rng.bool().then(|| self.leader_of(parent));
        let child = self.thread(self.last_tid, 0, leader, Some(parent));
        let (comm, number) = (self.threads[parent].comm, self.threads[parent].number);
        let thread = &mut self.threads[child];
        thread.comm = comm;
        thread.number = number;
        thread.in_call = true;
        self.show(child, self.now);
        self.show(parent, self.now);
        self.host
            .fork(self.threads[parent].task, self.threads[child].task);
        let is_wanted = match self.asked.whom {
            // A new process has no room in the list of the command's.
            Whom::Command => {
                self.threads[parent].member.is_some() && !(self.is_full && leader.is_none())
            }
            _ => self.is_target(&self.threads[child]),
        };
        if is_wanted {
            self.joins(child, true);
        }
    }

    fn renames(&mut self, at: usize) {
        let name = self.name();
        self.show(at, self.now);
        if self.asked.whom == Whom::Named {
            let rename = [self.threads[at].task as u64, name.as_ptr() as u64];
            self.host.run("task_rename", &rename);
        }
        self.threads[at].comm = name;
        self.show(at, self.now);
        if self.asked.whom != Whom::Named {
        } else if self.is_target(&self.threads[at]) {
            self.joins(at, false);
        } else {
            self.leaves(at);
        }
    }

    fn executes(&mut self, at: usize) {
        if !self.is_alone(at) {
            return;
        }
        self.renames(at);
        let task = self.threads[at].task as u64;
        self.host.run("sched_process_exec", &[task]);
        if self.asked.whom == Whom::Command
            && self.threads[at].tgid == COMMAND
            && !self.has_executed
        {
            self.has_executed = true;
            self.joins(at, false);
        }
    }

    fn ends(&mut self, at: usize) {
        self.leaves(at);
        self.call("host_ends", self.threads[at].task);
        self.threads.remove(at);
    }

    fn assert_told(&self, what: &str) {
        let host = &self.host;
        let full = ["groups_full", "buckets_full"].map(|name| host.read::<u64>(name));
        let told = [
            &host.sums::<_, 3>("totals", &0_u32)[..],
            &full,
            // Sums without room, negative times.
            &host.read::<[u64; 2]>("losses"),
            &[host.read("members_lost")],
        ];
        let expected = [&self.totals[..], &self.losses].concat();
        assert_eq!(told.concat(), expected, "{what}");
    }
}
