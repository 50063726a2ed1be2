//! The one that ended a wait: a thread in a function, or an interrupt.

use std::sync::Arc;

use profile::brief::place;
use profile::frame::Frame;
use profile::model::{Sample, Waker};

use crate::why::disks::{self, FOR_DISKS};
use crate::why::line::Culprit;

/// Functions of the kernel's threads that do what interrupts have left: packets that came are delivered there, and timers end.
const DELIVERIES: [&str; 2] = ["run_ksoftirqd", "napi_threaded_poll"];

/// Looks whether a waker of a wait for a reason is the kernel's, and did what an interrupt has it do.
fn is_for_interrupt(waker: &Waker, reason: &str) -> bool {
    let mut names = waker.kernel.iter().map(|frame| &*frame.name);
    let is_kernels = waker.user.is_empty() && !FOR_DISKS.contains(&reason);
    let is_delivery = is_kernels && names.any(|name| DELIVERIES.contains(&name));
    is_delivery || disks::is_completion(&waker.kernel)
}

/// The thread that ended a wait, which is no interrupt.
pub(super) fn ender<'a>(sample: &'a Sample, reason: &str) -> Option<(u32, &'a Arc<str>)> {
    let waker = sample.waker.as_ref();
    let waker = waker.filter(|waker| !is_for_interrupt(waker, reason))?;
    waker.task.as_ref().map(|task| (task.tid, &task.comm))
}

/// The one that ended a wait.
pub(super) fn culprit(sample: &Sample, reason: &str, is_open: bool) -> Culprit {
    match &sample.waker {
        None if is_open => Culprit::Nobody,
        None => Culprit::Unseen,
        Some(waker) if is_for_interrupt(waker, reason) => Culprit::Interrupt,
        Some(waker) => waker.task.as_ref().map_or(Culprit::Interrupt, |task| {
            let place = function(&waker.kernel, &waker.user);
            Culprit::Program((Arc::clone(&task.comm), task.tgid), place)
        }),
    }
}

/// Name of the function that a stack is in.
pub(super) fn function(kernel: &[Frame], user: &[Frame]) -> Option<Arc<str>> {
    place(kernel, user).map(|name| name.as_ref().into())
}
