//! Stacks of waits that are still open: their threads sleep, so they are walked from outside.

use std::mem::size_of;

use anyhow::Result;
use bpf::lockstat::types::open_futex;
use trace::maps;
use trace::stacks::StackTable;
use trace::unwind::Registers;

use crate::row::{Identity, LockRow};

/// `bytes`: what the closing iterator wrote.
pub(crate) fn add_stacks(
    rows: &mut [LockRow],
    mut bytes: &[u8],
    stacks: &mut StackTable,
    end_ns: u64,
) -> Result<()> {
    while bytes.len() >= size_of::<open_futex>() {
        let open: open_futex = maps::decode(bytes)?;
        bytes = &bytes[size_of::<open_futex>()..];
        let identity = Identity::from(&open.lock);
        let mut waiters = rows
            .iter_mut()
            .filter(|row| row.identity == identity)
            .flat_map(|row| &mut row.waiters);
        let waiter = waiters.find(|waiter| waiter.task.tid == open.tid && waiter.user == 0);
        if let Some(waiter) = waiter {
            let registers = Registers {
                ip: open.ip,
                sp: open.sp,
                bp: open.bp,
                exact: false,
            };
            waiter.user = stacks.insert_blocked(open.tgid, end_ns, registers);
        }
    }
    Ok(())
}
