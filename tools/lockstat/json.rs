//! `-j`: every lock, one by one.

use profile::frame::Frame;
use serde_json::{Value, json};
use stacks::StackTable;

use crate::lockstat::harvest::Harvest;
use crate::lockstat::meanwhile::Meanwhile;
use crate::lockstat::row::LeftOut;
use crate::lockstat::row::{Arrival, Holder, LockRow, Waiter};

/// `[{"side", "class", "name", …}, …]`, longest total wait first; see the manual.
pub(crate) fn locks(harvest: &Harvest, stacks: &mut StackTable) -> Value {
    let locks = harvest.rows.iter().map(|row| lock(row, stacks));
    locks.collect()
}

/// `[{"class", "waits", "total_ns", "unended_ns"}, …]`: classes of programs' locks that `--class` would add.
pub(crate) fn left_out(classes: &[LeftOut]) -> Value {
    let classes = classes.iter().map(|sum| {
        json!({"class": sum.class, "waits": sum.waits, "total_ns": sum.total_ns,
               "unended_ns": sum.unended_ns})
    });
    classes.collect()
}

fn lock(row: &LockRow, stacks: &mut StackTable) -> Value {
    let waiters: Vec<Value> = row.waiters.iter().map(waiter).collect();
    let holders: Vec<Value> = row.holders.iter().map(|one| holder(one, stacks)).collect();
    let last: Vec<Value> = row.last.iter().map(|one| arrival(one, stacks)).collect();
    // Of other locks it tells apart what has no address.
    let inode = row.identity.device.map_or(0, |_| row.identity.object);
    json!({
        "side": row.identity.side.word(),
        "class": row.class,
        "for": row.what.word(),
        "confidence": row.confidence,
        "name": row.name.own,
        "kind": row.name.kind,
        "address": format!("{:#x}", row.identity.address),
        "pid": row.identity.tgid,
        "inode": inode,
        "device": row.identity.device.map(|(major, minor)| format!("{major}:{minor}")),
        "contentions": row.contentions,
        "open": row.open,
        "raced": row.raced,
        "gave_up": row.timed_out,
        "total_ns": row.total_ns,
        "max_ns": row.max_ns,
        "spin_ns": row.spin_ns,
        "block_ns": row.block_ns,
        "runqueue_ns": row.run_queue_ns,
        "waits": row.waits.to_json(),
        "caller": row.first_caller.as_deref(),
        "waiters": waiters,
        "holders": holders,
        "last": last,
    })
}

/// The threads that came last to a barrier, with its stack, root first.
fn arrival(arrival: &Arrival, stacks: &mut StackTable) -> Value {
    let waker = stacks.waker(arrival.waker);
    let frames = waker.iter().flat_map(|waker| waker.user.iter());
    let names: Vec<&str> = frames.map(|frame| &*frame.name).collect();
    json!({
        "comm": *arrival.task.comm,
        "pid": arrival.task.tgid,
        "tid": arrival.task.tid,
        "times": arrival.times,
        "caused_ns": arrival.caused_ns,
        "caller": arrival.caller.as_deref(),
        "user": names,
    })
}

fn waiter(waiter: &Waiter) -> Value {
    json!({
        "comm": *waiter.task.comm,
        "pid": waiter.task.tgid,
        "tid": waiter.task.tid,
        "interrupt": waiter.in_interrupt,
        "shared": waiter.is_shared,
        "caller": waiter.caller.as_deref(),
        "count": waiter.count,
        "total_ns": waiter.total_ns,
        "runqueue_ns": waiter.run_queue_ns,
        "max_ns": waiter.max_ns,
    })
}

/// Its doings, by word; null where nobody knows.
fn meanwhile(meanwhile: &Meanwhile) -> Value {
    let parts = Meanwhile::WORDS.iter().zip(meanwhile.0);
    let parts = parts.map(|((word, _), ns)| ((*word).into(), ns.into()));
    match meanwhile.0.iter().any(|ns| *ns > 0) {
        true => Value::Object(parts.collect()),
        false => Value::Null,
    }
}

fn holder(holder: &Holder, stacks: &mut StackTable) -> Value {
    let frames = stacks.kernel_names(holder.stack);
    let names: Vec<&str> = frames.iter().map(|frame: &Frame| &*frame.name).collect();
    json!({
        "comm": *holder.task.comm,
        "pid": holder.task.tgid,
        "tid": holder.task.tid,
        "known_as": holder.kind.word(),
        "waits": holder.waits,
        "caused_ns": holder.caused_ns,
        "on_cpu": holder.on_cpu,
        "runnable": holder.runnable,
        "blocked": holder.blocked,
        "meanwhile_ns": meanwhile(&holder.meanwhile),
        "kernel": names,
    })
}
