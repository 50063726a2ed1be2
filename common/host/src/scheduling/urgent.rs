//! Work during which the thread that does it must have a CPU, or the guard can do nothing for anybody.
//!
//! A thread that forks holds the lock of the process's memory until all page tables are copied, and leaves every page
//! read-only: the guard waits for that lock when it next writes to one, such as its own stack. If the forking thread is not
//! run meanwhile, neither is the guard, and there is nobody to raise either of them.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::class::{self, Class, Priority, set_class};
use super::{own_tid, wake_guard};

/// A guard that can run answers in microseconds; beside hogs of its own priority it cannot.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks whether it has.
const PAUSE: Duration = Duration::from_micros(100);

/// One thread at a time.
static TURN: Mutex<()> = Mutex::new(());
/// The thread that is to be raised; 0: none.
static WANTED: AtomicI32 = AtomicI32::new(0);
/// The thread that the guard has raised, or could not raise; 0: none.
static ANSWERED: AtomicI32 = AtomicI32::new(0);

/// Runs `work` before all others, where there is a guard that may arrange it.
pub(crate) fn urgently<T>(work: impl FnOnce() -> T) -> T {
    let _urgent = Urgent::begin();
    work()
}

struct Urgent {
    _turn: MutexGuard<'static, ()>,
}

impl Urgent {
    fn begin() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let tid = own_tid();
        ANSWERED.store(0, Ordering::Release);
        WANTED.store(tid, Ordering::Release);
        if wake_guard() {
            let mut waited = Duration::ZERO;
            while ANSWERED.load(Ordering::Acquire) != tid && waited < PATIENCE {
                thread::sleep(PAUSE);
                waited += PAUSE;
            }
        }
        Self { _turn: turn }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        WANTED.store(0, Ordering::Release);
        wake_guard();
    }
}

/// The guard's side: the thread that it has raised, and its class before.
#[derive(Default)]
pub(super) struct Helped(Option<(libc::pid_t, Class)>);

impl Helped {
    /// Answers what is asked. `true`: somebody does urgent work.
    pub(super) fn answer(&mut self) -> bool {
        let wanted = WANTED.load(Ordering::Acquire);
        self.help(wanted);
        ANSWERED.store(wanted, Ordering::Release);
        wanted != 0
    }

    /// Raises that thread and no other; 0: none.
    pub(super) fn help(&mut self, tid: libc::pid_t) {
        if self.0.is_some_and(|(helped, _)| helped == tid) {
            return;
        }
        if let Some((helped, before)) = self.0.take() {
            // It may have ended.
            let _ = set_class(helped, before);
        }
        if tid == 0 {
            return;
        }
        let before = class::class_of(tid).ok();
        self.0 = before
            .filter(|class| {
                class.can_starve() && set_class(tid, Class::real_time(Priority::First)).is_ok()
            })
            .map(|before| (tid, before));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Instant;

    use super::*;
    use crate::forked;
    use crate::scheduling;

    thread_local! {
        /// At this thread's last fork.
        static CLASS: Cell<Option<Class>> = const { Cell::new(None) };
    }

    extern "C" fn note_class() {
        CLASS.set(class::class_of(0).ok());
    }

    fn can_starve() -> bool {
        class::class_of(0).expect("of this thread").can_starve()
    }

    #[test]
    fn forking_thread_goes_before_all_others() {
        let ordinary = class::class_of(0).expect("of this thread");
        let is_allowed = set_class(0, Class::real_time(Priority::First)).is_ok();
        set_class(0, ordinary).expect("no privilege is needed for that");
        // SAFETY: the function allocates nothing and takes no lock.
        unsafe { libc::pthread_atfork(Some(note_class), None, None) };
        scheduling::guard();
        let pid = forked::fork().expect("a child");
        if pid == 0 {
            // SAFETY: nothing that the parent registered is run.
            unsafe { libc::_exit(libc::c_int::from(!can_starve())) };
        }
        let class = CLASS.get().expect("it has forked");
        assert_eq!(class.can_starve(), !is_allowed, "{class:?}");
        let give_up = Instant::now() + Duration::from_secs(60);
        let mut child = None;
        while child.is_none() || !can_starve() {
            assert!(Instant::now() < give_up, "{child:?}");
            child = forked::status_of(pid);
            thread::yield_now();
        }
        forked::reap(pid);
        assert_eq!(child, Some(0), "the child has the ordinary class");
    }
}
