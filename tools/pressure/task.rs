//! One task's losses and uses in an interval.

use std::sync::Arc;

use bpf::pressure::types::{account, task_stock};
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
    pub(crate) account: account,
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

/// Adds what the other one lost, caused and used.
pub(crate) fn add(sum: &mut account, other: &account) {
    for (sum, lost_ns) in sum.lost_ns.iter_mut().zip(other.lost_ns) {
        *sum += lost_ns;
    }
    sum.caused_ns += other.caused_ns;
    sum.ios += other.ios;
    sum.read_bytes += other.read_bytes;
    sum.written_bytes += other.written_bytes;
    sum.faults += other.faults;
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
            account: stock.account,
            open: stock.open,
            open_ns: stock.open_ns,
            many: None,
        }
    }
}
