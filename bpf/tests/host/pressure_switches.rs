//! Switches, wakeups, migrations and reclaims, as pressure should take them.

use crate::machine::{Leaves, Machine};
use crate::members::{Count, Phase};

impl Machine {
    /// Everything but the CPU's counters.
    fn is_switched_out(&mut self, at: usize, leaves: Leaves, has_run_here: bool, now: u64) {
        let is_unknown = matches!(self.member(at).phase, Phase::Unknown | Phase::Dead);
        if !is_unknown && !has_run_here {
            self.drop_phase(at, now);
        } else {
            self.settles(at, now);
        }
        let (facts, switches) = (self.threads[at].facts, self.threads[at].switches());
        let has_psi = self.asked.psi;
        let member = self.member(at);
        member.switches = switches;
        if has_psi {
            member.memory = facts.memory;
            member.reclaims = if facts.memory { member.reclaims } else { 0 };
        }
        member.io = false;
        member.counted = None;
        match leaves {
            Leaves::Runnable => {
                member.phase = Phase::Waiting;
                let count = if facts.throttled {
                    Count::Throttled
                } else {
                    Count::Waiting
                };
                member.counted = Some(count);
            }
            Leaves::Dead => {
                member.phase = Phase::Dead;
                member.memory = false;
            }
            Leaves::Asleep => {
                member.phase = Phase::Asleep;
                member.io = facts.io;
            }
        }
    }

    /// Returns how it counted for this CPU.
    fn is_switched_in(&mut self, at: usize, cpu: usize, now: u64) -> Option<Count> {
        let is_odd = matches!(self.member(at).phase, Phase::Running | Phase::Asleep);
        if is_odd || self.is_stale(at) {
            self.drop_phase(at, now);
        } else {
            self.settles(at, now);
        }
        if self.member(at).cpu != cpu {
            self.leaves_counters(at, now);
        }
        let member = self.member(at);
        let leaves = member.counted.take();
        member.phase = Phase::Running;
        member.io = false;
        // Sleepers for memory are done with it; reclaim goes on.
        member.memory = member.reclaims > 0;
        member.cpu = cpu;
        leaves
    }

    /// None: the idle task.
    pub(crate) fn has_switched(
        &mut self,
        cpu: usize,
        (prev, leaves): (Option<usize>, Leaves),
        next: Option<usize>,
        now: u64,
    ) {
        self.told.events += 1;
        let is_member = |at: &usize| self.threads[*at].member.is_some();
        let (out, into) = (prev.filter(is_member), next.filter(is_member));
        self.told.unseen += u64::from(prev.is_none() && self.cpus[cpu].is_busy);
        // One that began to run elsewhere was moved unseen.
        let has_run_here = out.is_some_and(|at| {
            let member = self.member(at);
            member.phase == Phase::Running && member.cpu == cpu
        });
        let mut joins = None;
        if let Some(at) = out {
            self.is_switched_out(at, leaves, has_run_here, now);
            self.member(at).cpu = cpu;
            joins = self.member(at).counted;
        }
        let left = into.and_then(|at| self.is_switched_in(at, cpu, now));
        self.locks(cpu);
        let here = &mut self.cpus[cpu];
        here.passes(now);
        here.change(joins, 1);
        here.change(left, -1);
        here.is_busy = next.is_some();
        let waited_ns = here.waited_ns;
        let caused_ns = match out {
            Some(at) if has_run_here => waited_ns - self.member(at).waited_at_ns,
            _ => 0,
        };
        if let Some(at) = out {
            self.member(at).caused_ns += caused_ns;
        }
        if let Some(at) = into {
            self.member(at).waited_at_ns = waited_ns;
        }
        if !self.asked.stacks {
            return;
        }
        if let Some(at) = out {
            self.is_culprit(at, caused_ns);
        }
        if let Some(at) = into {
            self.is_resumed(at);
            self.member(at).never_ran = false;
        }
    }

    pub(crate) fn is_woken(&mut self, at: usize, now: u64) {
        let is_running = self.threads[at].facts.runs;
        let member = self.threads[at].member.as_ref();
        let Some(member) = member.filter(|it| it.phase != Phase::Dead && !is_running) else {
            return;
        };
        let is_news = member.phase != Phase::Waiting || self.is_stale(at);
        self.told.events += 1;
        if is_news {
            self.begins_to_wait(at, now);
        }
    }

    /// Sleepers stay with the CPU that they fell asleep on.
    pub(crate) fn is_migrated(&mut self, at: usize, to: usize, now: u64) {
        let counted = match &self.threads[at].member {
            Some(member) if member.phase == Phase::Waiting => member.counted,
            _ => None,
        };
        if counted.is_some() {
            self.leaves_counters(at, now);
            self.member(at).cpu = to;
            self.joins_counters(at, counted, now);
        }
    }

    /// `is_marked`: the kernel has marked it by now, if it is a stall at all.
    pub(crate) fn begins_reclaim(&mut self, at: usize, is_marked: bool, now: u64) {
        let is_stall = !is_marked || !self.asked.psi || self.threads[at].facts.memory;
        if self.threads[at].member.is_none() || !is_stall {
            return;
        }
        self.told.events += 1;
        let member = self.member(at);
        // Unmarked reclaim is told of again while it lasts.
        member.reclaims = if is_marked { member.reclaims + 1 } else { 1 };
        self.settles(at, now);
        self.member(at).memory = true;
    }

    pub(crate) fn ends_reclaim(&mut self, at: usize, now: u64) {
        let Some(member) = &mut self.threads[at].member else {
            return;
        };
        let was_in = member.reclaims > 0;
        member.reclaims = member.reclaims.saturating_sub(1);
        if !was_in || member.reclaims > 0 {
            return;
        }
        self.settles(at, now);
        self.member(at).memory = false;
        if self.asked.stacks {
            self.has_reclaimed(at);
        }
    }

    pub(crate) fn submits_io(&mut self, at: usize) {
        let is_own = !self.threads[at].facts.stacked;
        if self.threads[at].member.is_none() || !is_own {
            return;
        }
        self.member(at).ios += 1;
        if self.asked.stacks {
            self.submits(at);
        }
    }
}
