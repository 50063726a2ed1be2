//! The functions of `host/lockstat_futexes.c`.

use crate::calling::{Pointer, Programs};

/// A call that takes no futex: getppid(2) on x86-64, and something as harmless elsewhere.
pub(crate) const OTHER: i64 = 110;
pub(crate) const NO_CALL: i64 = -1;
pub(crate) const EXIT: i64 = -2;
pub(crate) const EXIT_GROUP: i64 = -4;
/// restart_syscall(2)
pub(crate) const RESTART: i64 = -3;

impl Programs {
    calls! {
        /// `has_vpid`: threads are found by numbers of any namespace.
        begin = "host_begin" (now: u64, has_vpid: bool);
        level = "host_level" (task: Pointer, level: u32);
        page = "host_page" () -> Pointer;
        returns = "host_returns" (ret: i64);
        /// A place in user space.
        stands = "host_stands" (task: Pointer, place: u64);
        free_page = "host_free_page" (page: Pointer);
        has_compat = "host_has_compat" () -> bool;
        /// 32-bit calls are seen from now on.
        attach = "host_attach" ();
    }

    /// Number and arguments of a system call, in the thread's registers.
    pub(crate) fn asks(&self, task: Pointer, number: i64, arguments: [u64; 6], is_compat: bool) {
        let name = if is_compat {
            "host_calls_compat"
        } else {
            "host_calls"
        };
        self.host.tell(name, (task, number, arguments.as_ptr()));
    }

    pub(crate) fn enters(&self, arguments: [u64; 6]) {
        self.host.tell("host_enters", (arguments.as_ptr(),));
    }

    /// The numbers of `host_handed`.
    pub(crate) fn handed(&self) -> [u64; 9] {
        self.host.told::<[u64; 9]>("host_handed", ())
    }
}
