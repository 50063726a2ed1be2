//! What the kernel has charged to the calling thread over an interval.

use serde_json::{Map, Value};

use crate::clock;
use crate::task::{self, Totals};

/// A running account of the calling thread.
pub struct Account {
    start_ns: u64,
    cpu_ns: u64,
    before: Totals,
}

impl Account {
    /// Opens an account: the slow reads first, the clocks last, so that the interval holds only work.
    #[must_use]
    pub fn open() -> Self {
        let before = task::totals(task::tid());
        Self {
            before,
            cpu_ns: clock::thread_cpu_ns(),
            start_ns: clock::mono_ns(),
        }
    }

    /// Closes it, clocks first, and returns the interval as JSON fields.
    ///
    /// `wall_ns = oncpu_ns + run_delay_ns + blocked`, but for time that the hypervisor stole.
    #[must_use]
    pub fn close(self) -> Map<String, Value> {
        let end_ns = clock::mono_ns();
        let oncpu_ns = clock::thread_cpu_ns() - self.cpu_ns;
        let mut totals = task::totals(task::tid()).since(&self.before);
        totals.oncpu_ns = oncpu_ns;
        let mut fields = totals.fields();
        fields.insert("tid".into(), task::tid().into());
        fields.insert("start_ns".into(), self.start_ns.into());
        fields.insert("end_ns".into(), end_ns.into());
        fields.insert("wall_ns".into(), (end_ns - self.start_ns).into());
        fields
    }
}
