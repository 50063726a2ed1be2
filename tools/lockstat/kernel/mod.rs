//! Locks of the kernel: class, name, caller.

pub(crate) mod callers;
mod names;
pub(crate) mod symbols;

use std::collections::HashMap;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{lock_id, lock_name};
use loader::maps;
use stacks::StackTable;

pub(crate) use callers::outside;

use crate::lockstat::known::forget_unused;
use crate::lockstat::row::{Identity, LockRow, Side};
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
    let used = rows.iter().map(|row| row.identity);
    forget_unused(&skel.maps.lock_names, &entries, used);
    Ok(())
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
