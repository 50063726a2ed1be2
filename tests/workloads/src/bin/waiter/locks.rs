//! Waits for a mutex that a helper holds, through Rust's futexes and through glibc's.
//!
//! One mutex per wait, all locked before the start and released one per period: with a single one the
//! helper would have to win it back from the waiter each time.

use std::cell::UnsafeCell;
use std::sync::{Mutex, PoisonError};

use usekit_workloads::stage::Stage;

use crate::measure::Plan;

fn leak<T>(plan: Plan, one: impl Fn() -> T) -> &'static [T] {
    Vec::leak((0..plan.waits).map(|_| one()).collect())
}

pub(crate) fn std_mutex(stage: &mut Stage, plan: Plan) {
    let locks = leak(plan, || Mutex::new(()));
    plan.partner(stage, move || {
        let mut held: Vec<_> = locks
            .iter()
            .map(|lock| Some(lock.lock().unwrap_or_else(PoisonError::into_inner)))
            .collect();
        move |i| drop(held[i as usize].take())
    });
    plan.waiter(stage, move || {
        move |i| {
            drop(
                locks[i as usize]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner),
            )
        }
    });
}

struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be shared, and is reached through its own functions only.
unsafe impl Sync for PthreadMutex {}

impl PthreadMutex {
    fn lock(&self) {
        // SAFETY: initialised statically, never moved (leaked) and never destroyed.
        let rc = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(rc, 0, "a normal mutex can be locked");
    }

    fn unlock(&self) {
        // SAFETY: as for lock; the caller's thread holds it.
        let rc = unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        assert_eq!(rc, 0, "a held mutex can be unlocked");
    }
}

pub(crate) fn pthread_mutex(stage: &mut Stage, plan: Plan) {
    let locks = leak(plan, || {
        PthreadMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    });
    plan.partner(stage, move || {
        locks.iter().for_each(PthreadMutex::lock);
        move |i| locks[i as usize].unlock()
    });
    plan.waiter(stage, move || {
        move |i| {
            let lock: &PthreadMutex = &locks[i as usize];
            lock.lock();
            lock.unlock();
        }
    });
}
