//! The functions of `host/lockstat_futexes.c`.

use std::ffi::c_void;

use crate::calling::{Row, row};
use crate::host::Host;

pub(crate) type Pointer = *mut c_void;

/// A call that takes no futex: getppid(2) on x86-64, and something as harmless elsewhere.
pub(crate) const OTHER: i64 = 110;
pub(crate) const NO_CALL: i64 = -1;
pub(crate) const EXIT: i64 = -2;
pub(crate) const EXIT_GROUP: i64 = -4;
/// restart_syscall(2)
pub(crate) const RESTART: i64 = -3;

/// lockstat's programs. Tasks and pages are what it has given out.
pub(crate) struct Programs {
    host: Host,
}

impl Programs {
    pub(crate) fn new(host: Host) -> Self {
        Self { host }
    }

    calls! {
        set = "host_set" (now: u64, cpu: u32, task: Pointer);
        /// `has_vpid`: threads are found by numbers of any namespace.
        begin = "host_begin" (now: u64, has_vpid: bool);
        /// Thread and process number.
        thread = "host_thread" (tid: u32, tgid: u32) -> Pointer;
        level = "host_level" (task: Pointer, level: u32);
        free_task = "host_free_task" (task: Pointer);
        page = "host_page" () -> Pointer;
        seed = "host_seed" (task: Pointer);
        fork = "host_fork" (parent: Pointer, child: Pointer);
        /// Its place: on a queue, on a CPU.
        state = "host_state" (task: Pointer, queued: bool, runs: bool);
        /// A switch out; `runnable`: it goes on a queue.
        leaves = "host_leaves" (task: Pointer, runnable: bool);
        switch = "host_switch" (preempt: bool, prev: Pointer, next: Pointer, state: u32);
        waking = "host_waking" (task: Pointer);
        returns = "host_returns" (ret: i64);
        /// An interval ends; half of its rows.
        turn = "host_turn" (now: u64) -> u32;
        /// The window ends; half of its rows.
        end = "host_end" (now: u64) -> u32;
        close = "host_close" (task: Pointer);
        /// The place of whoever is current, and whether scratches are in use.
        at = "host_at" (place: u64, is_taken: bool);
        stall = "host_stall" ();
        /// A place in user space.
        stands = "host_stands" (task: Pointer, place: u64);
        free_page = "host_free_page" (page: Pointer);
        has_compat = "host_has_compat" () -> bool;
        /// 32-bit calls are seen from now on.
        attach = "host_attach" ();
        /// No table takes another row.
        fill = "host_fill" ();
    }

    /// Number and arguments of a system call, in the thread's registers.
    pub(crate) fn asks(&self, task: Pointer, number: i64, arguments: [u64; 6], is_compat: bool) {
        type Asks = unsafe extern "C" fn(Pointer, i64, *const u64);
        let name = if is_compat {
            "host_calls_compat"
        } else {
            "host_calls"
        };
        // SAFETY: its type.
        unsafe { self.host.function::<Asks>(name)(task, number, arguments.as_ptr()) };
    }

    pub(crate) fn enters(&self, arguments: [u64; 6]) {
        type Enters = unsafe extern "C" fn(*const u64);
        // SAFETY: its type.
        unsafe { self.host.function::<Enters>("host_enters")(arguments.as_ptr()) };
    }

    /// The numbers of `host_handed`.
    pub(crate) fn handed(&self) -> [u64; 9] {
        type Handed = unsafe extern "C" fn(*mut u64);
        let mut handed = [0; 9];
        // SAFETY: its type.
        unsafe { self.host.function::<Handed>("host_handed")(handed.as_mut_ptr()) };
        handed
    }

    /// Takes the rows of a half, as `host_take` says.
    pub(crate) fn take(&self, half: u32) -> Vec<Vec<u64>> {
        type Take = unsafe extern "C" fn(u32, Row, *mut Vec<Vec<u64>>);
        let mut rows = Vec::new();
        // SAFETY: its type.
        unsafe { self.host.function::<Take>("host_take")(half, row, &raw mut rows) };
        rows
    }

    /// Locks that are described, as `host_tell` says.
    pub(crate) fn tell(&self) -> Vec<Vec<u64>> {
        type Tell = unsafe extern "C" fn(Row, *mut Vec<Vec<u64>>);
        let mut rows = Vec::new();
        // SAFETY: its type.
        unsafe { self.host.function::<Tell>("host_tell")(row, &raw mut rows) };
        rows
    }

    /// Numbers of what was interned.
    pub(crate) fn interned(&self, id: u64) -> [u64; 8] {
        type Interned = unsafe extern "C" fn(u64, *mut u64);
        let mut numbers = [0; 8];
        // SAFETY: its type.
        unsafe { self.host.function::<Interned>("host_interned")(id, numbers.as_mut_ptr()) };
        numbers
    }

    /// The numbers of `host_told`.
    pub(crate) fn told(&self) -> [u64; 13] {
        type Told = unsafe extern "C" fn(*mut u64);
        let mut told = [0; 13];
        // SAFETY: its type.
        unsafe { self.host.function::<Told>("host_told")(told.as_mut_ptr()) };
        told
    }
}
