//! Rows: waits of one thread in one place.

use bpf::offcputime::types::{offcputime_key, offcputime_value, open_phase, wait_call};
use host::task::comm_text;
use host::waits::Wait;
use profile::model::Task;

use crate::offcputime::details::Lengths;
use crate::offcputime::open::KnownStacks;

/// Time of one thread on one pair of stacks.
pub struct Row {
    /// The thread.
    pub task: Task,
    /// The kernel's word on why it left its CPU.
    pub wait: Wait,
    /// The file or connection that it waited for, by its number in [`Details`](super::details::Details); 0: none.
    pub endpoint: u64,
    /// User stack's id in the table of stacks; 0: none.
    pub user: u64,
    /// Kernel stack's id; 0: none.
    pub kernel: u64,
    /// Id of the waker's stack; 0: none.
    pub waker: u64,
    /// Until it was made runnable, ns.
    pub blocked_ns: u64,
    /// From then on until it had a CPU, ns.
    pub runqueue_ns: u64,
    /// Waits that are over, and the one that is open at the end.
    pub count: u64,
    /// One of them is open at the end.
    pub is_open: bool,
    /// Number among its thread's waits, if its end was not seen; else it is the sum of some.
    pub open_number: Option<u32>,
    /// Their lengths until they were over, or in the run queue where that is all they were for; where it was asked for.
    pub lengths: Lengths,
}

impl Row {
    /// The same place of the same thread, without any time.
    pub(crate) fn without_times(&self) -> Self {
        Self {
            task: self.task.clone(),
            blocked_ns: 0,
            runqueue_ns: 0,
            count: 0,
            open_number: None,
            lengths: Lengths::default(),
            ..*self
        }
    }

    /// Place among the rows of a report: those of equal runs stand in the same order.
    pub(crate) fn place(&self) -> impl Ord + '_ {
        let wait = WaitKey::from(self.wait);
        let stacks = (self.user, self.kernel, self.waker);
        (&self.task, wait, stacks, self.endpoint)
    }
}

/// A wait in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaitKey(i16, u8, u8, u32, u8);

impl From<Wait> for WaitKey {
    fn from(wait: Wait) -> Self {
        let Wait {
            flags,
            syscall,
            file_type,
            futex_op,
            futex_value,
        } = wait;
        Self(syscall, file_type, futex_op, futex_value, flags)
    }
}

/// Waits that are over.
pub(crate) fn finished_row(
    key: &offcputime_key,
    value: &offcputime_value,
    lengths: Lengths,
    known: &KnownStacks,
) -> Row {
    Row {
        blocked_ns: value.blocked_ns,
        runqueue_ns: value.runqueue_ns,
        count: value.count,
        lengths,
        ..row_of(key, known)
    }
}

/// A row without any time.
pub(crate) fn row_of(key: &offcputime_key, known: &KnownStacks) -> Row {
    let user = match known.get(&key.tid) {
        Some((user, _)) if key.is_known != 0 => *user,
        _ => key.user_stack,
    };
    Row {
        task: Task::new(comm_text(&key.comm), key.tgid, key.tid),
        wait: wait(key.call, key.wait_flags),
        endpoint: key.call.endpoint,
        user,
        kernel: key.kernel_stack,
        waker: key.waker,
        blocked_ns: 0,
        runqueue_ns: 0,
        count: 0,
        is_open: key.is_open != 0,
        open_number: None,
        lengths: Lengths::default(),
    }
}

/// A wait that the window's end cuts.
pub(crate) fn open_row(open: &open_phase, (user, kernel): (u64, u64), lengths: Lengths) -> Row {
    Row {
        task: Task::new(comm_text(&open.comm), open.tgid, open.tid),
        wait: wait(open.call, open.wait_flags),
        endpoint: open.call.endpoint,
        user,
        kernel,
        waker: 0,
        blocked_ns: open.blocked_ns,
        runqueue_ns: open.runqueue_ns,
        count: 1,
        is_open: true,
        open_number: Some(open.number),
        lengths,
    }
}

fn wait(call: wait_call, flags: u8) -> Wait {
    Wait {
        flags,
        syscall: call.syscall,
        file_type: call.file_type,
        futex_op: call.futex_op,
        futex_value: call.futex_value,
    }
}
