//! Who woke a task, as the BPF side says it.

use host::task::comm_text;
use profile::model::Task;

use crate::record::Record;

/// A waker's name, and the ids of its stacks.
pub(super) struct WakerIds {
    pub(super) task: Task,
    pub(super) kernel: u64,
    pub(super) user: u64,
}

impl WakerIds {
    /// `None` for a record of another length: thread ID, name (2 words), kernel stack, user stack.
    pub(super) fn decode(record: &Record) -> Option<Self> {
        let [tid, name0, name1, kernel, user] = record.addresses[..] else {
            return None;
        };
        let mut comm = [0; 16];
        comm[..8].copy_from_slice(&name0.to_ne_bytes());
        comm[8..].copy_from_slice(&name1.to_ne_bytes());
        let task = Task {
            comm: comm_text(&comm),
            tgid: record.tgid,
            tid: u32::try_from(tid).unwrap_or(0),
        };
        Some(Self { task, kernel, user })
    }
}
