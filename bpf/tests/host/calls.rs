//! Functions of a loaded object that play the machine.

use crate::host::Host;
use crate::host::machine::Task;

/// Functions that every tool has: `host/threads.h`, `host/host.h`.
pub(crate) struct Calls {
    pub(crate) set: unsafe extern "C" fn(u64, u32, Task),
    pub(super) thread: unsafe extern "C" fn(u32) -> Task,
    pub(super) free_task: unsafe extern "C" fn(Task),
    pub(super) leaves: unsafe extern "C" fn(Task, bool),
    pub(super) state: unsafe extern "C" fn(Task, bool, bool, bool),
    pub(super) signal: unsafe extern "C" fn(Task, bool),
    pub(super) says: unsafe extern "C" fn(Task, bool, u32, bool),
    pub(super) queued: unsafe extern "C" fn(Task, u64),
    pub(super) sleeps: unsafe extern "C" fn(Task, u32),
    pub(super) begin: unsafe extern "C" fn(u64),
    pub(super) seed: unsafe extern "C" fn(Task),
}

impl Calls {
    pub(super) fn of(host: &Host) -> Self {
        // SAFETY: their types.
        unsafe {
            Self {
                set: *host.function("host_set"),
                thread: *host.function("host_thread"),
                free_task: *host.function("host_free_task"),
                leaves: *host.function("host_leaves"),
                state: *host.function("host_state"),
                signal: *host.function("host_signal"),
                says: *host.function("host_says"),
                queued: *host.function("host_queued"),
                sleeps: *host.function("host_sleeps"),
                begin: *host.function("host_begin"),
                seed: *host.function("host_seed"),
            }
        }
    }
}
