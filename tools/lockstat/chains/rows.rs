//! The BPF side's table of chained waits, an interval at a time.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{chain_half, chain_key, chain_value};
use host::task::comm_text;
use libbpf_rs::MapCore;
use loader::maps;
use profile::model::Task;

use crate::lockstat::row::{HolderKind, Identity};

/// Waits of a thread for a lock whose holder waited for the same meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) lock: Identity,
    pub(crate) waiter: Task,
    pub(crate) holder: Option<Task>,
    pub(crate) kind: HolderKind,
    /// Row of what the holder waited for; 0: nothing.
    pub(crate) next: u64,
    /// In this interval. A row may be there for others to refer to it only.
    pub(crate) waits: u64,
    pub(crate) total_ns: u64,
    pub(crate) next_ns: u64,
}

/// What has been reported of a row.
#[derive(Clone, Copy, Default)]
struct Reported {
    halves: [(u64, u64, u64); 2],
    /// Intervals without anything new.
    idle: u32,
}

/// Intervals after which a row makes room.
const IDLE: u32 = 2;

/// The table's rows never shrink while it is read: what was reported is known here.
#[derive(Default)]
pub(crate) struct Rows {
    reported: HashMap<u64, Reported>,
}

impl Rows {
    /// Rows by their ids, with what is new in this half of the table.
    pub(crate) fn take(&mut self, skel: &LockstatSkel<'_>, half: u32) -> Result<HashMap<u64, Row>> {
        let table = maps::entries::<chain_key, chain_value>(&skel.maps.chains)?;
        let mut rows = HashMap::new();
        for (key, value) in &table {
            let reported = self.reported.entry(value.id).or_default();
            let row = row(key, value, half as usize & 1, reported);
            reported.idle = if row.waits > 0 { 0 } else { reported.idle + 1 };
            rows.insert(value.id, row);
        }
        self.keep_what_is_referred_to(&rows);
        for (key, value) in &table {
            if self
                .reported
                .get(&value.id)
                .is_some_and(|row| row.idle > IDLE)
            {
                self.reported.remove(&value.id);
                // SAFETY: a plain key is as many initialised bytes.
                let key = unsafe { plain::as_bytes(key) };
                let deleted = skel.maps.chains.delete(key);
                deleted.context("clear table of chains")?;
            }
        }
        Ok(rows)
    }

    fn keep_what_is_referred_to(&mut self, rows: &HashMap<u64, Row>) {
        for row in rows.values().filter(|row| row.waits > 0) {
            let mut next = row.next;
            // Bounded, should a clock have given two rows the same id.
            for _ in 0..rows.len() {
                let Some(behind) = rows.get(&next) else {
                    break;
                };
                self.reported.entry(next).or_default().idle = 0;
                next = behind.next;
            }
        }
    }
}

fn row(key: &chain_key, value: &chain_value, half: usize, reported: &mut Reported) -> Row {
    let chain_half {
        waits,
        total_ns,
        next_ns,
    } = value.halves[half];
    let before = std::mem::replace(&mut reported.halves[half], (waits, total_ns, next_ns));
    let task = |comm: &[u8; 16], tgid, tid| Task {
        comm: comm_text(comm),
        tgid,
        tid,
    };
    let holder = task(&value.holder_comm, value.holder_tgid, key.holder_tid);
    Row {
        lock: Identity::from(&key.lock),
        waiter: task(&value.waiter_comm, value.waiter_tgid, key.waiter_tid),
        holder: (key.holder_tid != 0).then_some(holder),
        kind: HolderKind::of(value.kind),
        next: key.next,
        waits: waits.saturating_sub(before.0),
        total_ns: total_ns.saturating_sub(before.1),
        next_ns: next_ns.saturating_sub(before.2),
    }
}
