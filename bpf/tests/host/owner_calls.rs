//! The functions of `host/lockstat_owners.c`.

use std::ffi::CStr;
use std::ptr;

use crate::calling::{Pointer, Programs};

impl Programs {
    calls! {
        /// A random number for whoever asks, and whether stacks are left out.
        roll = "host_roll" (dice: u32, without: bool);
        begin = "host_begin" (kernel_locks: bool, holder_stacks: bool, no_user: bool, no_kernel: bool);
        open = "host_open" (at: u64);
        memory = "host_memory" (task: Pointer, mm: Pointer);
        serves = "host_serves" (task: Pointer, page: Pointer, cpu: u32);
        reads_pipe = "host_reads_pipe" (task: Pointer, page: Pointer);
        sleeps = "host_sleeps" (task: Pointer, field: u32, lock: Pointer);
        lock = "host_lock" (page: Pointer, kind: u32) -> Pointer;
        owned = "host_owned" (lock: Pointer, words: u32, owner: u64);
    }

    pub(crate) fn begins(&self, lock: Pointer, flags: u32) {
        self.host
            .run("contention_begin", &[lock as u64, flags.into()]);
    }

    pub(crate) fn ends(&self, lock: Pointer, ret: i32) {
        let ret = i64::from(ret).cast_unsigned();
        self.host.run("contention_end", &[lock as u64, ret]);
    }

    /// A page, the name of its slab cache, and whether that is one of several that share it.
    pub(crate) fn page(&self, at: u32, slab: Option<&'static CStr>, is_merged: bool) -> Pointer {
        let slab = slab.map_or(ptr::null(), CStr::as_ptr);
        self.host.ask::<Pointer>("host_page", (at, slab, is_merged))
    }

    /// This kernel has no such field.
    pub(crate) fn lacks(&self, field: &'static CStr) {
        self.host.tell("host_lack", (field.as_ptr(),));
    }

    /// It is in futex(2).
    pub(crate) fn calls_futex(&self, task: Pointer, operation: u64) {
        let arguments = [0, operation, 0, 0, 0, 0];
        self.host
            .tell("host_calls", (task, 0_i64, arguments.as_ptr()));
    }
}
