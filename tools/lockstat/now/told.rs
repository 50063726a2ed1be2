//! Words for threads, and for what servers say of their waits.

use profile::text::comm;
use profile::units;

use super::lock::{Holder, Wait, Waited};
use super::snapshot::Snapshot;
use super::thread::Thread;
use crate::lockstat::postgres::Class;

/// Threads named in one line at most.
pub(super) const NAMED: usize = 8;
/// `worker (PID 12, TID 13)`
pub(crate) fn label(thread: &Thread) -> String {
    let (comm, tgid, tid) = (comm(&thread.task.comm), thread.task.tgid, thread.task.tid);
    if tgid == tid {
        format!("{comm} (PID {tgid})")
    } else {
        format!("{comm} (PID {tgid}, TID {tid})")
    }
}

/// `1.2 s`: for how long a thread has waited, where the server says so.
pub(super) fn so_far(wait: &Wait) -> Option<String> {
    wait.told.since_ns.map(units::duration)
}

/// `, and behind b (PID 13)`: who else is in the way, but for those of the same queue.
pub(super) fn also(snapshot: &Snapshot, wait: &Wait, queue: &[usize]) -> String {
    let others = wait.told.also.iter().filter(|other| !queue.contains(other));
    let others: Vec<&usize> = others.collect();
    let names = others.iter().take(NAMED);
    let names: Vec<String> = names
        .map(|other| label(&snapshot.threads.all[**other]))
        .collect();
    let more = match others.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    match names.is_empty() {
        true => String::new(),
        false => format!(", and behind {}{more}", names.join(", ")),
    }
}

/// The question that the server answers, where its memory did not.
pub(super) fn question(snapshot: &Snapshot, wait: &Wait) -> String {
    match (wait.kind, wait.holder) {
        (Waited::Server(Class::Lock), Holder::Unrecorded) => {
            let pid = snapshot.threads.all[wait.waiter].own_tid;
            format!("; ask the server: SELECT pg_blocking_pids({pid})")
        }
        _ => String::new(),
    }
}
