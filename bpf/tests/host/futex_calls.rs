//! The functions of `host/lockstat_futexes.c`.

use std::ffi::c_void;

use crate::host::Host;

pub(crate) type Pointer = *mut c_void;

/// `FUTEX_PRIVATE_FLAG` of include/uapi/linux/futex.h
const PRIVATE: u64 = 0x80;
/// `FUTEX_WAIT`, `FUTEX_WAIT_BITSET`, and the one that the tool gives futex_wait(2)
pub(crate) const WAITS: [u8; 3] = [0, 9, 65];
/// `FUTEX_WAKE`, `FUTEX_WAKE_BITSET`, the one of futex_wake(2)
pub(crate) const WAKES: [u8; 3] = [1, 10, 66];
/// Numbers of futex_wake(2) and futex_wait(2).
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
/// A call that takes no futex: getppid(2) on x86-64, and something as harmless elsewhere.
pub(crate) const OTHER: i64 = 110;
pub(crate) const NO_CALL: i64 = -1;
/// lockstat's programs. Tasks and locks are what it has given out.
pub(crate) struct Programs {
    host: Host,
}

/// A method that calls a function of the host with the same arguments.
macro_rules! calls {
    ($($(#[$about:meta])* $method:ident = $name:literal ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $($(#[$about])*
        pub(crate) fn $method(&self, $($argument: $type),*) $(-> $result)? {
            // SAFETY: its type; pointers are the host's own, or of arrays as long as it takes them to be.
            unsafe { self.host.function::<unsafe extern "C" fn($($type),*) $(-> $result)?>($name)($($argument),*) }
        })*
    };
}

impl Programs {
    pub(crate) fn new(host: Host) -> Self {
        Self { host }
    }

    calls! {
        set = "host_set" (now: u64, cpu: u32, task: Pointer);
        begin = "host_begin" (now: u64);
        /// Thread and process number.
        thread = "host_thread" (tid: u32, tgid: u32) -> Pointer;
        free_task = "host_free_task" (task: Pointer);
        lock = "host_lock" () -> Pointer;
        seed = "host_seed" (task: Pointer);
        fork = "host_fork" (parent: Pointer, child: Pointer);
        /// Its place: on a queue, on a CPU.
        state = "host_state" (task: Pointer, queued: bool, runs: bool);
        /// A switch out; `runnable`: it goes on a queue.
        leaves = "host_leaves" (task: Pointer, runnable: bool);
        switch = "host_switch" (preempt: bool, prev: Pointer, next: Pointer, state: u32);
        waking = "host_waking" (task: Pointer);
        returns = "host_returns" (ret: i64);
        end = "host_end" (now: u64);
        close = "host_close" (task: Pointer);
        bucket = "host_bucket" (lock: Pointer, operation: u8, is_shared: bool, tgid: u32, length_ns: u64) -> u64;
    }

    /// Number and arguments of a system call, in the thread's registers.
    pub(crate) fn asks(&self, task: Pointer, number: i64, arguments: [u64; 6]) {
        // SAFETY: its type.
        unsafe {
            self.host
                .function::<unsafe extern "C" fn(Pointer, i64, *const u64)>("host_calls")(
                task,
                number,
                arguments.as_ptr(),
            );
        }
    }

    pub(crate) fn enters(&self, arguments: [u64; 6]) {
        // SAFETY: its type.
        unsafe {
            self.host
                .function::<unsafe extern "C" fn(*const u64)>("host_enters")(
                arguments.as_ptr()
            );
        }
    }

    /// Sums of a lock's row, in the order of `host_sums`.
    pub(crate) fn sums(
        &self,
        lock: Pointer,
        operation: u8,
        is_shared: bool,
        tgid: u32,
    ) -> [u64; 9] {
        type Sums = unsafe extern "C" fn(Pointer, u8, bool, u32, *mut u64);
        let mut sums = [0; 9];
        // SAFETY: its type.
        unsafe {
            self.host.function::<Sums>("host_sums")(
                lock,
                operation,
                is_shared,
                tgid,
                sums.as_mut_ptr(),
            )
        };
        sums
    }

    /// Sums of a thread, in the order of `host_waiter`.
    pub(crate) fn waiter(
        &self,
        lock: Pointer,
        operation: u8,
        is_shared: bool,
        tgid: u32,
        tid: u32,
    ) -> [u64; 4] {
        type Waiter = unsafe extern "C" fn(Pointer, u8, bool, u32, u32, *mut u64);
        let mut sums = [0; 4];
        // SAFETY: its type.
        unsafe {
            self.host.function::<Waiter>("host_waiter")(
                lock,
                operation,
                is_shared,
                tgid,
                tid,
                sums.as_mut_ptr(),
            );
        }
        sums
    }

    /// Sums of who ended waits, by thread and process number, in the order of `host_holder`.
    pub(crate) fn holder(
        &self,
        lock: Pointer,
        operation: u8,
        is_shared: bool,
        tgid: u32,
        who: (u32, u32),
    ) -> [u64; 2] {
        type Holder = unsafe extern "C" fn(Pointer, u8, bool, u32, u32, u32, *mut u64);
        let mut sums = [0; 2];
        // SAFETY: its type.
        unsafe {
            self.host.function::<Holder>("host_holder")(
                lock,
                operation,
                is_shared,
                tgid,
                who.0,
                who.1,
                sums.as_mut_ptr(),
            );
        }
        sums
    }

    /// Calls that slept unseen, and waits that returned.
    pub(crate) fn told(&self) -> [u64; 2] {
        let mut told = [0; 2];
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

/// Number (0: futex(2)'s) and arguments of a call that waits on a lock or wakes who does.
pub(crate) fn futex_call(lock: Pointer, is_shared: bool, operation: u8) -> (i64, [u64; 6]) {
    let address = lock as u64;
    let private = if is_shared { 0 } else { PRIVATE };
    // A value of 1 would make it a thread's own word; 7 is no thread's number.
    match operation {
        65 => (FUTEX_WAIT, [address, 7, u64::MAX, private | 2, 0, 0]),
        66 => (FUTEX_WAKE, [address, u64::MAX, 1, private | 2, 0, 0]),
        _ => (
            0,
            [address, u64::from(operation) | private, 7, 0, 0, u64::MAX],
        ),
    }
}
