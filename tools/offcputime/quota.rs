//! CPU quotas that threads lacked.

use std::collections::HashSet;

use host::waits::{Reason, Wait};
use profile::model::Profile;
use session::quotas::{self, Quotas, UsedUp};

use crate::offcputime::answer::{THROTTLED, Waits};
use crate::offcputime::row::Row;

/// Groups whose quota was used up since then, and that processes are in which waited for one; those of the process that waited longest
/// come first. Where all of them have ended, any group may be theirs, unless they were asked for.
pub(crate) fn used_up(before: &Quotas, rows: &[Row], is_choice: bool) -> Vec<UsedUp> {
    let waited = throttled(rows).map(|row| (row.task.tgid, row.runqueue_ns));
    let mut victims = quotas::heaviest(waited).peekable();
    match victims.peek() {
        Some(_) => before.used_up_by(victims, is_choice),
        None => Vec::new(),
    }
}

fn throttled(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let rows = rows.iter();
    rows.filter(|row| row.wait.reason() == Reason::Throttled)
}

/// Function of the kernel in which threads wait for quota since 6.18, on their way to user space.
const WAITING: &str = "task_work_run";

/// The reason of a wait, by the kernel's function that waits, too. `lacks`: other waits of its process were for quota. Whoever had
/// used it up before the window is on no CPU's queue, and looks preempted.
pub(crate) fn reason(wait: Wait, function: &str, lacks: bool) -> Reason {
    match wait.reason_in(function) {
        Reason::Preempted if lacks && function == WAITING => Reason::Throttled,
        reason => reason,
    }
}

/// Processes that waited for quota.
pub(crate) fn lacking(rows: &[Row]) -> HashSet<u32> {
    throttled(rows).map(|row| row.task.tgid).collect()
}

/// Lines on whose quota it was, if threads waited for one longer than a hundredth of the time.
pub(crate) fn describe(profile: &Profile, quotas: &[UsedUp]) -> Vec<String> {
    let waits = Waits::of(profile);
    let ns = waits.ns(THROTTLED);
    if ns == 0 || ns < waits.all_ns / 100 {
        return Vec::new();
    }
    quotas::describe("threads waited", quotas)
}
