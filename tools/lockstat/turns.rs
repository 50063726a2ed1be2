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
    // Several have work at once.
    let [known_ns, _] = held(row);
    known_ns as f64 <= MOST_HELD * window_ns as f64 && is_kept(row) && are_balanced(row)
}

/// Time of all turns, ns: known, and not.
fn held(row: &LockRow) -> [u64; 2] {
    let turns = row.holders.iter().map(|holder| holder.meanwhile.known());
    turns.fold([0; 2], |sums, [known, unknown]| {
        [sums[0] + known, sums[1] + unknown]
    })
}

/// Looks whether whoever ends waits has kept something for a time before: else nobody has any work.
pub(crate) fn is_kept(row: &LockRow) -> bool {
    let mut waited: HashMap<(u32, u32), u64> = HashMap::new();
    for waiter in &row.waiters {
        *waited.entry(thread(&waiter.task)).or_default() += waiter.total_ns;
    }
    let longest_ns = waited.into_values().max().unwrap_or(0);
    held(row).iter().sum::<u64>() as f64 >= LEAST_HELD * longest_ns as f64
}

/// Looks whether threads release each other about as often as they wait.
fn are_balanced(row: &LockRow) -> bool {
    let mut parts: HashMap<(u32, u32), Part> = HashMap::new();
    for waiter in &row.waiters {
        parts.entry(thread(&waiter.task)).or_default().waits += waiter.count;
    }
    for holder in &row.holders {
        parts.entry(thread(&holder.task)).or_default().releases += holder.waits;
    }
    let all: u64 = parts.values().map(|part| part.sum()).sum();
    parts.retain(|_, part| part.is_balanced());
    let theirs: u64 = parts.values().map(|part| part.sum()).sum();
    parts.len() > 1 && theirs as f64 >= IN_TURNS * all as f64
}

fn thread(task: &Task) -> (u32, u32) {
    (task.tgid, task.tid)
}
