//! Hold times as one JSON object; the manual documents it.

use serde_json::{Value, json};
use trace::cost::Cost;

use super::Price;
use super::harvest::{Harvest, Row};

pub(crate) fn object(harvest: &Harvest, price: &Price, cost: &Cost) -> Value {
    let stopped = price.stopped.map(|stopped| {
        json!({
            "after_ns": stopped.after_ns,
            "share_percent": stopped.share,
            "traps_per_second": stopped.rate,
        })
    });
    json!({
        "tool": "lockstat",
        "version": env!("CARGO_PKG_VERSION"),
        "mode": "hold",
        "window_ns": price.window_ns,
        "traps": price.traps,
        "trap_ns": price.trap_ns,
        "target_cpu_ns": price.target_cpu_ns,
        "probed_ns": price.probed_ns,
        "detached_in_ns": price.detached_in_ns,
        "stopped": stopped,
        "forked": {
            "processes": price.forked.processes,
            "freed_within_ns": price.forked.freed_within_ns,
        },
        "taken_before": harvest.taken_before,
        "locks": harvest.rows.iter().map(row).collect::<Vec<Value>>(),
        "losses": harvest.losses.to_json(),
        "cost": cost.to_json(),
    })
}

fn row(row: &Row) -> Value {
    json!({
        "pid": row.tgid,
        "lock": row.name,
        "address": format!("{:#x}", row.address),
        "mode": row.mode.name(),
        "holds": row.holds.to_json(),
        "still_held": row.open,
        "tries_failed": row.tries_failed,
        "timed_out": row.timed_out,
        "caller": row.caller,
    })
}
