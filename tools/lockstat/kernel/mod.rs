//! Locks of the kernel: class, name, caller.

pub(crate) mod callers;
mod names;
pub(crate) mod symbols;

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{lock_id, lock_name};
use libbpf_rs::MapCore;
use trace::maps;
use trace::stacks::StackTable;

pub(crate) use callers::outside;

use crate::row::{Identity, LockRow, Side};
use callers::Callers;
use symbols::Symbols;

/// Names the kernel's locks among `rows`.
pub(crate) fn name(
    rows: &mut [LockRow],
    skel: &LockstatSkel<'_>,
    stacks: &mut StackTable,
    symbols: &mut Symbols,
) -> Result<()> {
    let entries = maps::entries::<lock_id, lock_name>(&skel.maps.lock_names)?;
    let known: HashMap<Identity, lock_name> = entries
        .iter()
        .map(|(id, name)| (Identity::from(id), *name))
        .collect();
    let mut callers = Callers::default();
    for row in rows
        .iter_mut()
        .filter(|row| row.identity.side == Side::Kernel)
    {
        let known = known.get(&row.identity);
        let first_walked = known.map_or(0, |name| name.kernel_stack);
        row.class = class(row.identity.class);
        callers.find(row, first_walked, stacks);
        row.name = names::of(row, known, symbols);
    }
    if entries.len() >= CROWDED {
        let used: HashSet<Identity> = rows.iter().map(|row| row.identity).collect();
        forget_unused(skel, entries.iter().map(|(id, _)| id), &used);
    }
    Ok(())
}

/// Half of what the BPF side's table holds.
const CROWDED: usize = 8192;

/// Makes room for the names of later intervals' locks; one that comes back is named again.
fn forget_unused<'a>(
    skel: &LockstatSkel<'_>,
    named: impl Iterator<Item = &'a lock_id>,
    used: &HashSet<Identity>,
) {
    for id in named.filter(|id| !used.contains(&Identity::from(*id))) {
        // SAFETY: a plain key is as many initialised bytes.
        let key = unsafe { plain::as_bytes(id) };
        // It is there, for nobody else deletes any.
        let _ = skel.maps.lock_names.delete(key);
    }
}

/// `enum kernel_lock_class`.
fn class(class: u8) -> &'static str {
    match class {
        1 => "spinlock",
        2 => "rwlock",
        3 => "mutex",
        4 => "rwsem",
        5 => "rtmutex",
        6 => "percpu-rwsem",
        _ => "semaphore",
    }
}
