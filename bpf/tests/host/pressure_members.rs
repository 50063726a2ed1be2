//! Threads and CPUs as pressure knows them.

use crate::machine::Machine;
use crate::stock::Account;

/// `enum stalled_on`.
pub(crate) const CPU: usize = 0;
pub(crate) const MEMORY: usize = 1;
pub(crate) const IO: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Unknown,
    Running,
    Waiting,
    Asleep,
    Dead,
}

pub(crate) const ASLEEP: Phase = Phase::Asleep;

/// Ways in which a waiting thread counts for its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Waiting,
    Throttled,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) phase: Phase,
    pub(crate) since_ns: u64,
    pub(crate) lost_ns: [u64; 3],
    pub(crate) caused_ns: u64,
    pub(crate) ios: u64,
    /// Its CPU's `waited_ns` when it was switched in.
    pub(crate) waited_at_ns: u64,
    /// Switches of the thread when it left its CPU.
    pub(crate) switches: u64,
    pub(crate) cpu: usize,
    pub(crate) counted: Option<Count>,
    pub(crate) io: bool,
    pub(crate) memory: bool,
    pub(crate) reclaims: u8,
    pub(crate) never_ran: bool,
    /// Cost of the wait since the last edge; then its stacks.
    pub(crate) pending_ns: [u64; 3],
    pub(crate) kernel_stack: u64,
    pub(crate) user_stack: u64,
    pub(crate) reported: Account,
}

impl Member {
    pub(crate) fn stalls(&self) -> [bool; 3] {
        let is_for_io = self.phase == Phase::Asleep && self.io;
        [self.phase == Phase::Waiting, self.memory, is_for_io]
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.pending_ns != [0; 3]
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    /// Threads by `Count`.
    pub(crate) counts: [i64; 2],
    pub(crate) is_busy: bool,
    pub(crate) since_ns: u64,
    pub(crate) waited_ns: u64,
    pub(crate) throttled_ns: u64,
}

impl Cpu {
    pub(crate) fn passes(&mut self, now: u64) {
        let passed_ns = match self.since_ns {
            0 => 0,
            since_ns => now.saturating_sub(since_ns),
        };
        self.since_ns = self.since_ns.max(now);
        let [waiting, throttled] = self.counts.map(|count| u64::try_from(count).unwrap_or(0));
        self.waited_ns += if self.is_busy { passed_ns * waiting } else { 0 };
        self.throttled_ns += passed_ns * throttled;
    }

    pub(crate) fn change(&mut self, counted: Option<Count>, by: i64) {
        if let Some(count) = counted {
            self.counts[count as usize] += by;
        }
    }
}

impl Machine {
    pub(crate) fn member(&mut self, at: usize) -> &mut Member {
        self.threads[at].member.as_mut().expect("a member")
    }

    /// The lock of a CPU is not waited for if its owner was interrupted.
    pub(crate) fn locks(&mut self, cpu: usize) {
        self.told.unlocked += u64::from(self.hash_locks && self.held[cpu]);
    }

    fn recount(&mut self, cpu: usize, counted: Option<Count>, by: i64, now: u64) {
        if counted.is_some() {
            self.locks(cpu);
            self.cpus[cpu].passes(now);
            self.cpus[cpu].change(counted, by);
        }
    }

    pub(crate) fn leaves_counters(&mut self, at: usize, now: u64) {
        let member = self.member(at);
        let (cpu, counted) = (member.cpu, member.counted.take());
        self.recount(cpu, counted, -1, now);
    }

    pub(crate) fn joins_counters(&mut self, at: usize, counted: Option<Count>, now: u64) {
        self.member(at).counted = counted;
        let cpu = self.member(at).cpu;
        self.recount(cpu, counted, 1, now);
    }

    /// The time since the last change goes to what held in it.
    pub(crate) fn settles(&mut self, at: usize, now: u64) {
        let (has_stacks, edge_ns) = (self.asked.stacks, self.edge_ns);
        let member = self.member(at);
        let passed_ns = now.saturating_sub(member.since_ns);
        // Time before the edge was told there.
        let spans_edge = now > edge_ns && member.since_ns < edge_ns;
        let untold_ns = if spans_edge { now - edge_ns } else { passed_ns };
        for (on, is_stalled) in member.stalls().into_iter().enumerate() {
            if is_stalled {
                member.lost_ns[on] += passed_ns;
                member.pending_ns[on] += if has_stacks { untold_ns } else { 0 };
            }
        }
        member.since_ns = now;
    }

    /// An event was hidden: nobody knows when the phase ended.
    pub(crate) fn drop_phase(&mut self, at: usize, now: u64) {
        let member = self.member(at);
        let passed_ns = now.saturating_sub(member.since_ns);
        let is_stalled = member.stalls().contains(&true);
        self.told.unseen += 1;
        self.told.unseen_ns += if is_stalled { passed_ns } else { 0 };
        self.leaves_counters(at, now);
        let member = self.member(at);
        member.since_ns = now;
        member.phase = Phase::Unknown;
        member.memory = false;
    }

    /// It waits, as is believed, and has been on a CPU since.
    pub(crate) fn is_stale(&self, at: usize) -> bool {
        let thread = &self.threads[at];
        let member = thread.member.as_ref().expect("a member");
        member.phase == Phase::Waiting && member.switches != thread.switches()
    }

    pub(crate) fn begins_to_wait(&mut self, at: usize, now: u64) {
        if self.member(at).phase == Phase::Running || self.is_stale(at) {
            self.drop_phase(at, now);
        } else {
            self.settles(at, now);
        }
        self.leaves_counters(at, now);
        let (switches, cpu) = (self.threads[at].switches(), self.threads[at].facts.cpu);
        let member = self.member(at);
        member.phase = Phase::Waiting;
        member.io = false;
        member.switches = switches;
        member.cpu = cpu as usize;
        self.joins_counters(at, Some(Count::Waiting), now);
    }

    /// It is followed from now on; `is_new`: from its fork.
    pub(crate) fn joins(&mut self, at: usize, is_new: bool) {
        let (now, usage) = (self.now, self.usage(at));
        let thread = &mut self.threads[at];
        let mut member = Member {
            since_ns: now,
            ..Member::default()
        };
        if is_new {
            member.phase = Phase::Asleep;
            member.never_ran = true;
            thread.member = Some(member);
            return;
        }
        member.reported = usage;
        let is_waiting = thread.is_queued();
        if !thread.facts.runs {
            let facts = thread.facts;
            member.phase = if is_waiting {
                Phase::Waiting
            } else {
                Phase::Asleep
            };
            (member.io, member.memory) = (facts.io, facts.memory);
            member.switches = thread.switches();
            member.cpu = facts.cpu as usize;
        }
        let is_counted = member.phase == Phase::Waiting;
        thread.member = Some(member);
        self.joins_counters(at, is_counted.then_some(Count::Waiting), now);
    }
}
