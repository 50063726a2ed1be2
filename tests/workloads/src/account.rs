//! What the kernel has charged to the calling thread over an interval.

use serde_json::{Value, json};

use crate::task::{self, Totals};
use crate::{clock, protocol};

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

    /// Closes it, clocks first: the interval, and `more` of it, as a JSON object.
    ///
    /// `wall_ns = oncpu_ns + run_delay_ns + blocked`, but for time that the hypervisor stole.
    #[must_use]
    pub fn close(self, more: Value) -> Value {
        let end_ns = clock::mono_ns();
        let oncpu_ns = clock::thread_cpu_ns() - self.cpu_ns;
        let mut totals = task::totals(task::tid()).since(&self.before);
        totals.oncpu_ns = oncpu_ns;
        let interval = json!({
            "tid": task::tid(),
            "start_ns": self.start_ns,
            "end_ns": end_ns,
            "wall_ns": end_ns - self.start_ns,
        });
        protocol::merged(protocol::merged(totals.fields(), interval), more)
    }
}
