//! The functions of `host/lockstat_owners.c`.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::calling::{Row, row};
use crate::host::Host;

pub(crate) type Pointer = *mut c_void;

/// lockstat's programs. Tasks, pages and locks are what it has given out.
pub(crate) struct Programs {
    host: Host,
}

impl Programs {
    pub(crate) fn new(host: Host) -> Self {
        Self { host }
    }

    calls! {
        set = "host_set" (now: u64, cpu: u32, task: Pointer);
        /// The place of whoever is current, and whether scratches are in use.
        at = "host_at" (place: u64, is_taken: bool);
        /// A random number for whoever asks, and whether stacks are left out.
        roll = "host_roll" (dice: u32, without: bool);
        begin = "host_begin" (kernel_locks: bool, holder_stacks: bool, no_user: bool, no_kernel: bool);
        open = "host_open" (at: u64);
        /// Thread and process number.
        thread = "host_thread" (tid: u32, tgid: u32) -> Pointer;
        free_task = "host_free_task" (task: Pointer);
        memory = "host_memory" (task: Pointer, mm: Pointer);
        serves = "host_serves" (task: Pointer, page: Pointer, cpu: u32);
        reads_pipe = "host_reads_pipe" (task: Pointer, page: Pointer);
        sleeps = "host_sleeps" (task: Pointer, field: u32, lock: Pointer);
        lock = "host_lock" (page: Pointer, kind: u32) -> Pointer;
        owned = "host_owned" (lock: Pointer, words: u32, owner: u64);
        seed = "host_seed" (task: Pointer);
        fork = "host_fork" (parent: Pointer, child: Pointer);
        /// Its place: on a queue, on a CPU.
        state = "host_state" (task: Pointer, queued: bool, runs: bool);
        leaves = "host_leaves" (task: Pointer, runnable: bool);
        switch = "host_switch" (preempt: bool, prev: Pointer, next: Pointer, state: u32);
        waking = "host_waking" (task: Pointer);
        begins = "host_begins" (lock: Pointer, flags: u32);
        ends = "host_ends" (lock: Pointer, ret: i32);
        /// An interval ends, and the window if it is the last one; half of its rows.
        turn = "host_turn" (now: u64, is_last: bool) -> u32;
        close = "host_close" (task: Pointer);
        /// No table takes another row.
        fill = "host_fill" ();
        stall = "host_stall" ();
    }

    /// A page, the name of its slab cache, and whether that is one of several that share it.
    pub(crate) fn page(&self, at: u32, slab: Option<&'static CStr>, is_merged: bool) -> Pointer {
        type Page = unsafe extern "C" fn(u32, *const c_char, bool) -> Pointer;
        let slab = slab.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: its type.
        unsafe { self.host.function::<Page>("host_page")(at, slab, is_merged) }
    }

    /// This kernel has no such field.
    pub(crate) fn lacks(&self, field: &'static CStr) {
        // SAFETY: its type.
        unsafe {
            self.host
                .function::<unsafe extern "C" fn(*const c_char)>("host_lacks")(
                field.as_ptr()
            );
        }
    }

    /// It is in futex(2).
    pub(crate) fn calls_futex(&self, task: Pointer, operation: u64) {
        type Calls = unsafe extern "C" fn(Pointer, i64, *const u64);
        let arguments = [0, operation, 0, 0, 0, 0];
        // SAFETY: its type.
        unsafe { self.host.function::<Calls>("host_calls")(task, 0, arguments.as_ptr()) };
    }

    /// Numbers of what was interned.
    pub(crate) fn interned(&self, id: u64) -> [u64; 8] {
        let mut numbers = [0; 8];
        // SAFETY: its type.
        unsafe {
            self.host
                .function::<unsafe extern "C" fn(u64, *mut u64)>("host_interned")(
                id,
                numbers.as_mut_ptr(),
            );
        }
        numbers
    }

    /// Takes the rows of a half, as `host_take` says.
    pub(crate) fn take(&self, half: u32) -> Vec<Vec<u64>> {
        let mut rows = Vec::new();
        // SAFETY: its type.
        unsafe {
            self.host
                .function::<unsafe extern "C" fn(u32, Row, *mut Vec<Vec<u64>>)>("host_take")(
                half,
                row,
                &raw mut rows,
            );
        }
        rows
    }

    /// Chains and names, as `host_tell` says.
    pub(crate) fn tell(&self) -> Vec<Vec<u64>> {
        let mut rows = Vec::new();
        // SAFETY: its type.
        unsafe {
            self.host
                .function::<unsafe extern "C" fn(Row, *mut Vec<Vec<u64>>)>("host_tell")(
                row,
                &raw mut rows,
            );
        }
        rows
    }

    /// The numbers of `host_told`.
    pub(crate) fn told(&self) -> [u64; 15] {
        let mut told = [0; 15];
        // SAFETY: its type.
        unsafe {
            self.host
                .function::<unsafe extern "C" fn(*mut u64)>("host_told")(
                told.as_mut_ptr()
            )
        };
        told
    }
}
