//! Which waits are a pool's thread having nothing to do.
//!
//! A wait counts as idle when its kind may be (poll, accept, a condition variable, a parked kernel thread) and the
//! thread spends nine tenths of its time off the CPU in that one place: a habit, not an event. Short waits whose stacks were left out
//! are at no known place.

use std::collections::HashMap;

use stacks::LEFT_OUT;

use crate::offcputime::harvest::Row;

/// Share of a thread's time off the CPU that makes a place its habit.
const HABIT: f64 = 0.9;

/// Whether each row is idle, in order.
pub(crate) fn mark(rows: &[Row]) -> Vec<bool> {
    let mut per_thread: HashMap<(u32, u32), u64> = HashMap::new();
    let mut per_place: HashMap<(u32, u32, u64, i16), u64> = HashMap::new();
    for row in rows {
        let ns = row.blocked_ns + row.runqueue_ns;
        *per_thread.entry((row.task.tgid, row.task.tid)).or_default() += ns;
        if row.user != LEFT_OUT {
            *per_place.entry(key(row)).or_default() += ns;
        }
    }
    rows.iter()
        .map(|row| {
            let of_place = per_place.get(&key(row)).copied().unwrap_or(0);
            let all = per_thread[&(row.task.tgid, row.task.tid)];
            let is_habit = of_place as f64 >= HABIT * all as f64;
            row.user != LEFT_OUT && row.wait.may_be_idle() && is_habit
        })
        .collect()
}

fn key(row: &Row) -> (u32, u32, u64, i16) {
    (row.task.tgid, row.task.tid, row.user, row.wait.syscall)
}
