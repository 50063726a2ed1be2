//! One task's losses and uses in an interval.

use std::sync::Arc;

use bpf::pressure::types::task_stock;
use host::task::comm_text;

/// One task in one interval.
#[derive(Clone, Debug)]
pub(crate) struct TaskStock {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: Arc<str>,
    pub(crate) process_comm: Arc<str>,
    pub(crate) cgroup_id: u64,
    pub(crate) is_kernel_thread: bool,
    pub(crate) has_exited: bool,
    /// By `ON_CPU`, `ON_MEMORY`, `ON_IO`.
    pub(crate) lost_ns: [u64; 3],
    /// Time that others waited for the CPU while it ran.
    pub(crate) caused_ns: u64,
    /// Block I/O requests submitted.
    pub(crate) ios: u64,
    /// Bytes read from disks.
    pub(crate) read_bytes: u64,
    /// Bytes dirtied, or written directly.
    pub(crate) written_bytes: u64,
    /// Page faults.
    pub(crate) faults: u64,
    /// Bits `1 << ON_…` of the wait that is not over, and its length so far.
    pub(crate) open: u8,
    pub(crate) open_ns: u64,
    /// It is the sum of many that have ended.
    pub(crate) many: Option<Many>,
}

/// Number of tasks that a record is the sum of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Many {
    /// They were asked about.
    pub(crate) is_wanted: bool,
    /// Besides the one that the record names.
    pub(crate) processes: u64,
    pub(crate) threads: u64,
}

impl From<&task_stock> for TaskStock {
    fn from(stock: &task_stock) -> Self {
        Self {
            tgid: stock.tgid,
            tid: stock.tid,
            comm: comm_text(&stock.comm),
            process_comm: comm_text(&stock.process_comm),
            cgroup_id: stock.cgroup_id,
            is_kernel_thread: stock.kernel_thread != 0,
            has_exited: stock.exited != 0,
            lost_ns: stock.account.lost_ns,
            caused_ns: stock.account.caused_ns,
            ios: stock.account.ios,
            read_bytes: stock.account.read_bytes,
            written_bytes: stock.account.written_bytes,
            faults: stock.account.faults,
            open: stock.open,
            open_ns: stock.open_ns,
            many: None,
        }
    }
}
