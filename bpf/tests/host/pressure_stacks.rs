//! Stacks in which threads lose time, and stacks of those that cost it them.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::members::{CPU, IO, MEMORY};

/// `struct stall_stack` of stall_stacks.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Stack {
    kernel_stack: u64,
    user_stack: u64,
    tgid: u32,
    tid: u32,
    comm: [u8; 16],
    half: u32,
    resource: u8,
    role: u8,
    pad: [u8; 2],
}

const VICTIM: u8 = 0;
const CULPRIT: u8 = 1;

/// Stacks of host/pressure.c: a thread's own, and that of one which is off its CPU.
const KERNEL: u64 = 1_000;
const USER: u64 = 2_000;
const OTHERS: u64 = 3_000;

impl Machine {
    fn stack(&self, at: usize, role: u8, resource: usize) -> Stack {
        let thread = &self.threads[at];
        Stack {
            tgid: thread.tgid,
            tid: thread.tid,
            comm: thread.facts.comm,
            half: self.half,
            resource: resource as u8,
            role,
            ..Stack::default()
        }
    }

    fn weighs(&mut self, stack: Stack, weight: u64) {
        if weight == 0 {
            return;
        }
        if self.is_full && !self.stacks.contains_key(&stack) {
            self.told.stacks_full += 1;
            return;
        }
        *self.stacks.entry(stack).or_default() += weight;
    }

    /// A walk may be left out for want of a budget; without a scratch nothing comes of it. None: that.
    fn may_walk(&mut self) -> Option<bool> {
        let (lacks_scratch, lacks_budget) = self.lacks;
        if lacks_budget {
            self.told.left_out += 1;
            return Some(false);
        }
        self.told.busy += u64::from(lacks_scratch);
        (!lacks_scratch).then_some(true)
    }

    fn walks_current(&mut self, stack: &mut Stack, with_kernel: bool) -> bool {
        let Some(is_walked) = self.may_walk() else {
            return false;
        };
        let tid = u64::from(stack.tid);
        if is_walked {
            stack.user_stack = USER + tid;
            stack.kernel_stack = if with_kernel {
                KERNEL + tid
            } else {
                stack.kernel_stack
            };
        }
        true
    }

    fn walks_other(&mut self, at: usize) -> u64 {
        match self.may_walk() {
            Some(true) => OTHERS + u64::from(self.threads[at].tid),
            _ => 0,
        }
    }

    fn tells_pending(&mut self, at: usize, stack: Stack) {
        let pending_ns = std::mem::take(&mut self.member(at).pending_ns);
        for (on, ns) in pending_ns.into_iter().enumerate() {
            let resource = on as u8;
            self.weighs(Stack { resource, ..stack }, ns);
        }
    }

    /// It leaves its CPU, where others waited for it.
    pub(crate) fn is_culprit(&mut self, at: usize, caused_ns: u64) {
        if caused_ns == 0 && self.asked.walk_on_exit {
            return;
        }
        let mut stack = self.stack(at, CULPRIT, CPU);
        if self.walks_current(&mut stack, caused_ns > 0) {
            self.member(at).user_stack = stack.user_stack;
            self.weighs(stack, caused_ns);
        }
    }

    /// Its wait is over; it is not current yet.
    pub(crate) fn is_resumed(&mut self, at: usize) {
        if !self.member(at).has_pending() {
            return;
        }
        let has_stack = !self.member(at).never_ran;
        let kernel_stack = if has_stack { self.walks_other(at) } else { 0 };
        self.member(at).kernel_stack = kernel_stack;
        if self.asked.walk_on_exit && has_stack {
            return;
        }
        let user_stack = if has_stack {
            self.member(at).user_stack
        } else {
            0
        };
        let stack = self.stack(at, VICTIM, CPU);
        self.tells_pending(
            at,
            Stack {
                kernel_stack,
                user_stack,
                ..stack
            },
        );
    }

    /// A thread comes back from the switch, in its own context.
    pub(crate) fn leaves_kernel(&mut self, at: usize, is_switch: bool) {
        let member = self.threads[at].member.as_ref();
        let Some(member) = member.filter(|it| is_switch && it.has_pending()) else {
            return;
        };
        let kernel_stack = member.kernel_stack;
        let mut stack = Stack {
            kernel_stack,
            ..self.stack(at, VICTIM, CPU)
        };
        if self.walks_current(&mut stack, false) {
            self.tells_pending(at, stack);
        }
    }

    pub(crate) fn has_reclaimed(&mut self, at: usize) {
        let pending_ns = self.member(at).pending_ns[MEMORY];
        let mut stack = self.stack(at, VICTIM, MEMORY);
        if self.walks_current(&mut stack, true) {
            self.weighs(stack, pending_ns);
        }
        self.member(at).pending_ns[MEMORY] = 0;
    }

    pub(crate) fn submits(&mut self, at: usize) {
        let mut stack = self.stack(at, CULPRIT, IO);
        if self.walks_current(&mut stack, true) {
            self.weighs(stack, 1);
        }
    }

    /// A wait that goes on at the edge is told as far as it lies behind the edge before.
    pub(crate) fn reports_open(&mut self, at: usize) {
        let member = self.threads[at].member.as_ref().expect("a member");
        let from_ns = member.since_ns.max(self.previous_edge_ns);
        let stalls = member.stalls();
        if self.edge_ns <= from_ns || !stalls.contains(&true) {
            return;
        }
        let kernel_stack = self.walks_other(at);
        for on in [CPU, MEMORY, IO].into_iter().filter(|on| stalls[*on]) {
            let half = 1 - self.half;
            let stack = Stack {
                kernel_stack,
                half,
                ..self.stack(at, VICTIM, on)
            };
            self.weighs(stack, self.edge_ns - from_ns);
        }
    }

    /// The interval that has ended is read.
    pub(crate) fn take_stacks(&mut self) {
        type Rows = BTreeMap<Stack, u64>;
        let half = 1 - self.half;
        let taken = self
            .host
            .take("stall_stacks", |key: &Stack| key.half == half);
        let told: Rows = taken.into_iter().collect();
        let all = std::mem::take(&mut self.stacks);
        let (expected, left): (Rows, Rows) = all.into_iter().partition(|(key, _)| key.half == half);
        self.stacks = left;
        assert!(told == expected, "{}: {told:?}, {expected:?}", self.what);
    }
}
