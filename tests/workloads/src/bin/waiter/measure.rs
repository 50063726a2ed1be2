//! Waits one by one, and the helper threads that end them.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use serde_json::{Value, json};
use usekit_workloads::account::Account;
use usekit_workloads::stage::Stage;
use usekit_workloads::{clock, task};

/// How often and how long one kind waits.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: &'static str,
    pub(crate) waits: u64,
    pub(crate) period_ns: u64,
    pub(crate) progress: &'static Progress,
}

/// Progress of the measured thread of a plan.
#[derive(Default)]
pub(crate) struct Progress {
    tid: AtomicI32,
    begun: AtomicU64,
}

impl Progress {
    /// Waits until wait number `i` has begun and the thread sleeps in it: one that is late must not miss its waits.
    fn await_wait(&self, i: u64) {
        let has_begun = || self.begun.load(Ordering::Acquire) > i;
        let give_up_ns = clock::mono_ns() + 120_000_000_000;
        while !has_begun() || !task::sleeps(self.tid.load(Ordering::Acquire)) {
            assert!(clock::mono_ns() < give_up_ns, "wait {i} never began");
            clock::sleep_ns(50_000);
        }
    }
}

impl Plan {
    /// Adds the measured thread `w-KIND`: `prepare` returns the operation that waits, given its number.
    pub(crate) fn waiter<O>(self, stage: &mut Stage, prepare: impl FnOnce() -> O + Send + 'static)
    where
        O: FnMut(u64) + 'static,
    {
        stage.spawn(&format!("w-{}", self.kind), move || {
            let operation = prepare();
            move || Some(self.measure(operation))
        });
    }

    /// Adds the helper `h-KIND` that ends wait number `i` at `(i + 1)` periods after the start, and not before it has begun.
    pub(crate) fn partner<T>(self, stage: &mut Stage, prepare: impl FnOnce() -> T + Send + 'static)
    where
        T: FnMut(u64) + 'static,
    {
        stage.spawn(&format!("h-{}", self.kind), move || {
            let mut tick = prepare();
            move || {
                let start_ns = clock::mono_ns();
                for i in 0..self.waits {
                    clock::sleep_until(start_ns + (i + 1) * self.period_ns);
                    self.progress.await_wait(i);
                    tick(i);
                }
                None
            }
        });
    }

    fn measure(self, mut operation: impl FnMut(u64)) -> Value {
        let mut slept = 0;
        self.progress.tid.store(task::tid(), Ordering::Release);
        let account = Account::open();
        for i in 0..self.waits {
            let before = usage();
            self.progress.begun.store(i + 1, Ordering::Release);
            operation(i);
            slept += u64::from(usage().ru_nvcsw > before.ru_nvcsw);
        }
        account.close(json!({"kind": self.kind, "waits": self.waits, "slept": slept}))
    }
}

fn usage() -> libc::rusage {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    }
}
