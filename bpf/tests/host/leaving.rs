//! Ways to leave a CPU.

use fastrand::Rng;

/// `TASK_INTERRUPTIBLE`
pub(super) const INTERRUPTIBLE: u32 = 1;
/// `TASK_UNINTERRUPTIBLE`
const UNINTERRUPTIBLE: u32 = 2;
/// `TASK_RTLOCK_WAIT`: ps does not know it, and the queue decides.
const UNKNOWN: u32 = 0x1000;
/// `TASK_DEAD`
pub(super) const DEAD: u32 = 0x80;

/// A way to leave a CPU.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub(super) is_preempted: bool,
    pub(super) state: u32,
    pub(super) has_signal: bool,
    /// On the queue.
    pub(super) stays: bool,
    pub(super) is_delayed: bool,
}

pub(super) const IDLE: Leaving = Leaving {
    is_preempted: false,
    state: 0,
    has_signal: false,
    stays: true,
    is_delayed: false,
};

pub(super) const EXIT: Leaving = Leaving {
    is_preempted: false,
    state: DEAD,
    has_signal: false,
    stays: false,
    is_delayed: false,
};

impl Leaving {
    pub(super) fn random(rng: &mut Rng) -> Self {
        let (is_preempted, state, has_signal, stays) = match rng.u32(0..8) {
            // Driven off, also on the way to sleep.
            0 => (true, 0, false, true),
            1 => (true, INTERRUPTIBLE, false, true),
            // Yields.
            2 => (false, 0, false, true),
            // Kept from sleeping.
            3 => (false, INTERRUPTIBLE, true, true),
            4 => (false, UNKNOWN, false, rng.bool()),
            5 => (false, UNINTERRUPTIBLE, false, false),
            _ => (false, INTERRUPTIBLE, false, false),
        };
        Self {
            is_preempted,
            state,
            has_signal,
            stays,
            is_delayed: !stays && rng.bool(),
        }
    }
}
