//! Threads of the replay of syscount, and what may be known of the calls that they are in.

use std::ptr;

use crate::asked::{COMMAND, TOOL};
use crate::calls::Calls;
use crate::host::machine::Task;

pub(crate) const KTHREAD: u32 = 0x0020_0000;
pub(crate) const IO_WORKER: u32 = 0x10;

/// A call as the tool may know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// None: it was not seen to begin, if it is one at all.
    pub(crate) number: Option<u32>,
    pub(crate) begin_ns: u64,
    /// The edge up to which it is in the sums.
    pub(crate) told_ns: u64,
    pub(crate) slept: bool,
}

/// A target's state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Member {
    /// It has not come back from the call that made it.
    pub(crate) is_new: bool,
    pub(crate) call: Option<Call>,
}

#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) task: Task,
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    pub(crate) flags: u32,
    pub(crate) comm: [u8; 16],
    pub(crate) in_call: bool,
    pub(crate) runs: bool,
    pub(crate) dead: bool,
    pub(crate) sleeps: u64,
    /// The number that the entry into the kernel has saved.
    pub(crate) number: i64,
    pub(crate) is_compat: bool,
    pub(crate) fd: u32,
    pub(crate) member: Option<Member>,
}

impl Thread {
    pub(crate) fn makes_calls(&self) -> bool {
        self.flags == 0
    }

    /// The call that the saved registers tell of.
    pub(crate) fn saved_call(&self) -> Option<u32> {
        let number = u32::try_from(self.number).ok()?;
        Some(number & 0xffff | u32::from(self.is_compat) << 31)
    }

    pub(crate) fn call(&mut self) -> Option<&mut Call> {
        self.member.as_mut()?.call.as_mut()
    }
}

impl Calls {
    /// The tool, kernel threads, processes; some are in a call.
    pub(crate) fn make_threads(&mut self) {
        self.thread(TOOL, 0, None, None);
        self.thread(30, KTHREAD, None, None);
        for process in 0..5 {
            let tid = COMMAND + 10 * process;
            let leader = self.thread(tid, 0, None, None);
            self.thread(tid + 1, 0, Some(leader), None);
            self.thread(tid + 2, IO_WORKER, Some(leader), None);
        }
        // The command has one thread when it executes.
        self.threads
            .retain(|it| it.tgid != COMMAND || it.tid == COMMAND);
        for at in 0..self.threads.len() {
            let thread = &mut self.threads[at];
            if thread.makes_calls() && self.rng.bool() {
                thread.in_call = true;
                thread.number = 202;
                thread.runs = self.rng.bool();
            } else {
                thread.runs = thread.makes_calls();
            }
        }
    }

    /// Returns where it is.
    pub(crate) fn thread(
        &mut self,
        tid: u32,
        flags: u32,
        leader: Option<usize>,
        parent: Option<usize>,
    ) -> usize {
        let task = |at: Option<usize>| at.map_or(ptr::null_mut(), |at| self.threads[at].task);
        let made = self
            .host
            .ask::<Task>("host_thread", (tid, flags, task(leader), task(parent)));
        let tgid = leader.map_or(tid, |at| self.threads[at].tgid);
        let comm = self.name();
        self.threads.push(Thread {
            task: made,
            tid,
            tgid,
            flags,
            comm,
            in_call: false,
            runs: false,
            dead: false,
            sleeps: self.rng.u64(0..3),
            number: -1,
            is_compat: false,
            fd: 0,
            member: None,
        });
        self.threads.len() - 1
    }

    pub(crate) fn name(&mut self) -> [u8; 16] {
        let mut name = [0; 16];
        for letter in &mut name[..self.rng.usize(1..4)] {
            *letter = *self.rng.choice(b"ab").expect("some");
        }
        name
    }

    pub(crate) fn leader_of(&self, at: usize) -> usize {
        let tgid = self.threads[at].tgid;
        let leader = self.threads.iter().position(|it| it.tid == tgid);
        leader.expect("it ends last")
    }

    pub(crate) fn is_alone(&self, at: usize) -> bool {
        let tgid = self.threads[at].tgid;
        self.threads.iter().filter(|it| it.tgid == tgid).count() == 1
    }
}
