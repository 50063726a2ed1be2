//! Stacks of waits that are still open: their threads sleep, so they are walked from outside. A thread that has run by the end of
//! the walk may have been anywhere meanwhile: its wait has no stack.

use std::collections::HashMap;
use std::mem::size_of;

use anyhow::Result;
use bpf::lockstat::types::open_futex;
use host::task::slices_of;
use loader::maps;
use stacks::StackTable;
use stacks::unwind::Registers;

use crate::lockstat::row::{Identity, LockRow};

/// `bytes`: what the closing iterator wrote.
pub(crate) fn add_stacks(
    rows: &mut [LockRow],
    mut bytes: &[u8],
    stacks: &mut StackTable,
    end_ns: u64,
) -> Result<()> {
    // A thread may have waited for several locks; all threads may wait for one.
    let mut without: HashMap<u32, Vec<[usize; 2]>> = HashMap::new();
    for (row, lock) in rows.iter().enumerate() {
        for (place, waiter) in lock.waiters.iter().enumerate() {
            if waiter.user == 0 {
                let of_thread = without.entry(waiter.task.tid).or_default();
                of_thread.push([row, place]);
            }
        }
    }
    while bytes.len() >= size_of::<open_futex>() {
        let open: open_futex = maps::decode(bytes)?;
        bytes = &bytes[size_of::<open_futex>()..];
        let identity = Identity::from(&open.lock);
        let of_thread = without.get(&open.tid).into_iter().flatten();
        let mut of_lock = of_thread.filter(|[row, _]| rows[*row].identity == identity);
        let found = of_lock.next().copied();
        let Some(waiter) = found.map(|[row, place]| &mut rows[row].waiters[place]) else {
            continue;
        };
        if waiter.user == 0 {
            let registers = Registers {
                ip: open.ip,
                sp: open.sp,
                bp: open.bp,
                lr: open.lr,
                thread_pointer: open.thread_pointer,
                exact: false,
            };
            let (stack, inside) = stacks.insert_inside(open.tgid, end_ns, registers, open.outer_sp);
            match slices_of(open.tgid, open.tid) == open.slices {
                true => (waiter.user, waiter.inside) = (stack, inside as u64),
                false => stacks.count_ran_on(),
            }
        }
    }
    Ok(())
}
