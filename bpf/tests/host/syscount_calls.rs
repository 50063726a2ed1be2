//! A machine whose threads make calls, and what is to be counted of these.

use bpf::syscount::types::group_by;
use fastrand::Rng;

use crate::asked::{Asked, COMMAND, LETTER, NUMBERS, TOOL, Whom};
use crate::host::Host;
use crate::host::buckets::bucket;
use crate::host::machine::Task;
use crate::rows::{self, EARLIER_NS, Group, OPEN, OPEN_NS, Tables};
use crate::threads::{Call, Member, Thread};

pub(crate) const CPUS: u32 = 8;
/// Files of these types have somebody at their other end: none, pipes, character devices, sockets.
const PEERS: [u32; 4] = [0, 1, 2, 12];
const PEER_CALL: u32 = 1 << 30;
/// Its first argument is a descriptor only where it is known and not a 32-bit program's.
const KNOWN_CALLS: u32 = 512;

pub(crate) struct Calls {
    pub(crate) host: Host,
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) asked: Asked,
    pub(crate) threads: Vec<Thread>,
    pub(crate) last_tid: u32,
    pub(crate) has_executed: bool,
    /// 0: not yet, or not known.
    pub(crate) window: (u64, u64),
    pub(crate) edge_ns: u64,
    pub(crate) half: u32,
    pub(crate) open_half: u32,
    /// Its rows have been taken.
    pub(crate) is_open_taken: bool,
    pub(crate) tables: [Tables; 2],
    pub(crate) is_full: bool,
    /// Calls, those under way at the start, groups made.
    pub(crate) totals: [u64; 3],
    /// Groups, buckets and sums without room, negative times, members without room.
    pub(crate) losses: [u64; 5],
    /// Time in calls within the window, of those that are no longer open.
    pub(crate) spent_ns: u64,
}

impl Calls {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let asked = Asked::drawn(&mut rng);
        asked.tell(&host);
        let mut calls = Self {
            host,
            rng,
            now: 1_000,
            asked,
            threads: Vec::new(),
            last_tid: 1_000,
            has_executed: false,
            window: (0, 0),
            edge_ns: 0,
            half: 0,
            open_half: 0,
            is_open_taken: false,
            tables: Default::default(),
            is_full: false,
            totals: [0; 3],
            losses: [0; 5],
            spent_ns: 0,
        };
        calls.make_threads();
        calls
    }

    pub(crate) fn call(&self, name: &str, task: Task) {
        self.host.tell(name, (task,))
    }

    /// The kernel's word on a thread, which is current at that time.
    pub(crate) fn show(&mut self, at: usize, ns: u64) {
        let (cpu, thread) = (self.rng.u32(0..CPUS), &self.threads[at]);
        self.host.tell(
            "host_is",
            (
                thread.task,
                thread.comm.as_ptr(),
                thread.sleeps,
                thread.runs,
                thread.dead,
            ),
        );

        self.host.tell(
            "host_saved",
            (
                thread.task,
                thread.number,
                thread.is_compat,
                u64::from(thread.fd),
            ),
        );
        self.host.tell("host_set", (ns, cpu, thread.task));
    }

    pub(crate) fn is_target(&self, thread: &Thread) -> bool {
        let is_asked = match self.asked.whom {
            Whom::All => true,
            Whom::Named => thread.comm[0] == LETTER,
            Whom::Command => self.has_executed && self.is_of_command(thread.tgid),
        };
        is_asked && thread.tgid != TOOL
    }

    /// Children have numbers from 1,000 on; only targets' may be the command's.
    fn is_of_command(&self, tgid: u32) -> bool {
        let is_members = |it: &Thread| it.tgid == tgid && it.member.is_some();
        tgid == COMMAND || self.threads.iter().any(is_members)
    }

    /// It is a target from now on; `is_new`: from its fork.
    pub(crate) fn joins(&mut self, at: usize, is_new: bool) {
        if self.threads[at].member.is_some() {
            return;
        }
        if self.is_full && self.asked.is_hashed {
            self.losses[4] += 1;
            return;
        }
        let unknown = Call {
            number: None,
            begin_ns: self.now,
            told_ns: 0,
            slept: true,
        };
        let thread = &mut self.threads[at];
        let may_be_in_one = !is_new && thread.makes_calls();
        thread.member = Some(Member {
            is_new,
            call: may_be_in_one.then_some(unknown),
        });
    }

    /// The end of the call that it was in is not seen.
    pub(crate) fn leaves(&mut self, at: usize) {
        self.is_given_up(self.threads[at].member.and_then(|it| it.call));
        self.threads[at].member = None;
    }

    fn is_given_up(&mut self, call: Option<Call>) {
        let told_ns = call.map(|it| it.told_ns.saturating_sub(it.begin_ns.max(self.window.0)));
        self.spent_ns += told_ns.unwrap_or(0);
    }

    pub(crate) fn enters(&mut self, at: usize) {
        let number = i64::from(self.rng.choice(NUMBERS).expect("some"));
        // Nobody's call, and one of the x32 interface.
        let number = match self.rng.u32(0..30) {
            0 => -1,
            1 => number | 0x4000_0000,
            _ => number,
        };
        let thread = &mut self.threads[at];
        thread.in_call = true;
        thread.number = number;
        thread.is_compat = self.rng.u32(0..8) == 0;
        thread.fd = self.rng.u32(0..16);
        self.show(at, self.now);
        self.host.tell("host_enters", (number,));
        let thread = &mut self.threads[at];
        let number = thread.saved_call();
        if let Some(member) = &mut thread.member {
            member.is_new = false;
            member.call = Some(Call {
                number,
                begin_ns: self.now,
                told_ns: 0,
                slept: false,
            });
        }
    }

    pub(crate) fn returns(&mut self, at: usize, ns: u64) {
        let values = [
            0,
            0,
            7,
            -2,
            -13,
            -13,
            -511,
            -512,
            -516,
            -517,
            -4_095,
            -4_096,
            -1 << 40,
        ];
        let value: i64 = self.rng.choice(values).expect("some");
        self.show(at, ns);
        self.host.tell("host_returns", (value,));
        self.threads[at].in_call = false;
        let Some(member) = self.threads[at].member else {
            return;
        };
        if !member.is_new {
            self.has_returned(at, member.call, value, ns);
        }
        self.threads[at].member = Some(Member::default());
    }

    /// A call of `None` was refused before it began.
    fn has_returned(&mut self, at: usize, call: Option<Call>, value: i64, ns: u64) {
        let known = call.and_then(|call| call.number);
        let Some(number) = known.or_else(|| self.threads[at].saved_call()) else {
            self.is_given_up(call);
            return;
        };
        let number = number | call.map_or(0, |call| self.peer(at, number, call.slept));
        let mut call = call.unwrap_or(Call {
            number: Some(number),
            begin_ns: ns,
            told_ns: 0,
            slept: false,
        });
        if ns > self.edge_ns && !self.is_open_taken {
            self.is_open_at_edge(at, &mut call, number);
        }
        let (start_ns, end_ns) = self.window;
        let begin_ns = call.begin_ns.max(start_ns);
        if start_ns > 0 && ns >= begin_ns {
            let last_ns = if end_ns > 0 { ns.min(end_ns) } else { ns };
            self.spent_ns += last_ns.saturating_sub(begin_ns);
        }
        if start_ns == 0 || ns < start_ns || (end_ns > 0 && ns >= end_ns) {
            return;
        }
        let error = match value {
            -4_095..0 => value.unsigned_abs() as u32,
            _ => 0,
        };
        if !self.asked.takes(error) {
            return;
        }
        if ns < begin_ns {
            self.losses[3] += 1;
            return;
        }
        self.totals[0] += 1;
        let is_under_way = call.begin_ns < start_ns || call.number.is_none();
        self.totals[1] += u64::from(is_under_way);
        self.is_counted(
            at,
            number,
            error,
            (ns - begin_ns, call.told_ns.saturating_sub(begin_ns)),
            ns,
        );
    }

    /// `lengths`: ns in all, and those of them that earlier intervals have.
    fn is_counted(&mut self, at: usize, number: u32, error: u32, lengths: (u64, u64), ns: u64) {
        let group = self.group(at, number);
        let half = if self.edge_ns > 0 && ns <= self.edge_ns {
            self.open_half
        } else {
            self.half
        };
        let tables = &mut self.tables[half as usize];
        let (length_ns, earlier_ns) = lengths;
        let is_known = tables.groups.contains_key(&group);
        self.totals[2] += u64::from(!is_known);
        if self.is_full && !is_known {
            self.losses[0] += 1;
            return;
        }
        let sums = tables.groups.entry(group).or_default();
        *sums = [sums[0] + 1, sums[1] + length_ns, sums[2].max(length_ns)];
        let key = (group, bucket(length_ns));
        let has_room = rows::add(&mut tables.buckets, key, 1, self.is_full);
        self.losses[1] += u64::from(!has_room);
        if error > 0 {
            self.adds(half, (group, error), 1);
        }
        if earlier_ns > 0 && self.asked.config.failures == 0 {
            self.adds(half, (group, EARLIER_NS), earlier_ns);
        }
    }

    fn adds(&mut self, half: u32, key: (Group, u32), value: u64) {
        let tables = &mut self.tables[half as usize];
        let has_room = rows::add(&mut tables.sums, key, value, self.is_full);
        self.losses[2] += u64::from(!has_room);
    }

    fn peer(&self, at: usize, number: u32, slept: bool) -> u32 {
        let is_of_file = number < KNOWN_CALLS && self.asked.takes_fd(number);
        let is_peer = slept && is_of_file && PEERS.contains(&self.threads[at].fd);
        if is_peer { PEER_CALL } else { 0 }
    }

    fn group(&self, at: usize, call: u32) -> Group {
        let thread = &self.threads[at];
        let leader = &self.threads[self.leader_of(at)];
        let (id, comm) = match self.asked.config.group_by {
            group_by::BY_PROCESS => (thread.tgid, leader.comm),
            group_by::BY_THREAD => (thread.tid, thread.comm),
            group_by::BY_CALL => (0, [0; 16]),
            _ => (0, leader.comm),
        };
        Group { id, call, comm }
    }

    /// The part of a call that lies in the interval which has ended goes there.
    fn is_open_at_edge(&mut self, at: usize, call: &mut Call, number: u32) {
        let begin_ns = call.begin_ns.max(self.window.0);
        let from_ns = begin_ns.max(call.told_ns);
        if from_ns >= self.edge_ns {
            return;
        }
        call.told_ns = self.edge_ns;
        if self.asked.config.failures > 0 {
            return;
        }
        let group = self.group(at, number);
        self.adds(self.open_half, (group, OPEN), 1);
        self.adds(self.open_half, (group, OPEN_NS), self.edge_ns - from_ns);
    }

    /// The iterator at an edge comes by.
    pub(crate) fn is_visited(&mut self, at: usize) {
        self.show(at, self.now);
        self.call("host_count_open", self.threads[at].task);
        let mut thread = self.threads[at].clone();
        let (is_running, saved) = (thread.runs, thread.saved_call());
        let Some(call) = thread.call().filter(|_| !self.threads[at].dead) else {
            return;
        };
        let number = call.number.or(saved.filter(|_| !is_running));
        if let Some(number) = number {
            let number = number | self.peer(at, number, call.slept);
            let mut told = *call;
            self.is_open_at_edge(at, &mut told, number);
            *call = told;
        }
        self.threads[at].member = thread.member;
    }
}
