//! Turns with a lock, be it made of a semaphore, or of a condition variable: who gives it back has waited for it before.

use std::collections::HashMap;

use profile::model::Task;

use crate::lockstat::row::LockRow;

/// Share of the waits and releases that are those of threads which take turns.
const IN_TURNS: f64 = 0.9;
/// Waits, and releases, of a thread that tell.
const FEW: u64 = 4;
/// Releases for a wait, and waits for a release, at most: not every turn begins with a wait, or ends one.
const AS_OFTEN: u64 = 2;
/// Time of all turns: in parts of the longest that a thread waited, and of the window.
const LEAST_HELD: f64 = 0.5;
const MOST_HELD: f64 = 1.3;

/// A thread's waits for a lock, and its releases of others there.
#[derive(Clone, Copy, Default)]
struct Part {
    waits: u64,
    waited_ns: u64,
    releases: u64,
}

impl Part {
    fn sum(self) -> u64 {
        self.waits + self.releases
    }

    /// It releases others there about as often as it waits there itself.
    fn is_balanced(self) -> bool {
        let least = self.waits.min(self.releases);
        least >= FEW && self.waits.max(self.releases) <= AS_OFTEN * least
    }
}

/// Looks whether several threads take turns with a lock: one of them has it, and only one, while others wait.
pub(crate) fn take_turns(row: &LockRow, window_ns: u64) -> bool {
    let mut parts: HashMap<(u32, u32), Part> = HashMap::new();
    for waiter in &row.waiters {
        let part = parts.entry(thread(&waiter.task)).or_default();
        part.waits += waiter.count;
        part.waited_ns += waiter.total_ns;
    }
    let (mut known_ns, mut unknown_ns) = (0, 0);
    for holder in &row.holders {
        parts.entry(thread(&holder.task)).or_default().releases += holder.waits;
        let [known, unknown] = holder.meanwhile.known();
        (known_ns, unknown_ns) = (known_ns + known, unknown_ns + unknown);
    }
    // Several have work at once, or nobody has any.
    let longest_ns = parts.values().map(|part| part.waited_ns).max();
    let least_ns = LEAST_HELD * longest_ns.unwrap_or(0) as f64;
    let is_one = known_ns as f64 <= MOST_HELD * window_ns as f64;
    if !is_one || ((known_ns + unknown_ns) as f64) < least_ns {
        return false;
    }
    let all: u64 = parts.values().map(|part| part.sum()).sum();
    parts.retain(|_, part| part.is_balanced());
    let theirs: u64 = parts.values().map(|part| part.sum()).sum();
    parts.len() > 1 && theirs as f64 >= IN_TURNS * all as f64
}

fn thread(task: &Task) -> (u32, u32) {
    (task.tgid, task.tid)
}
