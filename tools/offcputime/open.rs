//! Stacks of waits that are open: those under way when a window opens, and those that its end cuts.

use std::collections::{HashMap, HashSet};
use std::mem::size_of;

use anyhow::Result;
use bpf::offcputime::types::open_phase;
use host::clock::monotonic_ns;
use loader::maps;
use stacks::unwind::Registers;
use stacks::{StackTable, words};

use crate::offcputime::args::Args;

/// User and kernel stack of each thread's open wait.
pub(crate) type KnownStacks = HashMap<u32, (u64, u64)>;

/// The stacks of open waits.
pub(crate) struct Open<'a> {
    /// Those that were walked after the window's end.
    pub(crate) walked: KnownStacks,
    /// Those that were before it; afterwards all that go on.
    pub(crate) known: &'a mut KnownStacks,
    /// All stacks.
    pub(crate) table: &'a mut StackTable,
}

impl Open<'_> {
    /// Those of a wait that was open at the window's end; `None`: it was over before they were seen.
    pub(crate) fn of(
        &mut self,
        args: &Args,
        open: &open_phase,
        kernel: &[u64],
        end_ns: u64,
    ) -> Option<(u64, u64)> {
        if open.is_known != 0 {
            let ids = self.walked.get(&open.tid);
            return ids.or_else(|| self.known.get(&open.tid)).copied();
        }
        match open.ran_on {
            0 => Some(open_stacks(args, open, kernel, self.table, end_ns)),
            _ => walked_on_leaving(open),
        }
    }
}

/// The stack of a wait that was walked when its thread left its CPU, as in windows of a budget, or that of one that had never run: it
/// stays the wait's own when the thread has run on, and the kernel's part is gone.
pub(crate) fn walked_on_leaving(open: &open_phase) -> Option<(u64, u64)> {
    (open.user_stack != 0 || open.is_new != 0).then_some((open.user_stack, 0))
}

fn open_stacks(
    args: &Args,
    open: &open_phase,
    kernel: &[u64],
    stacks: &mut StackTable,
    end_ns: u64,
) -> (u64, u64) {
    let user = match to_walk(args, open) {
        Some((tgid, registers)) => stacks.insert_blocked(tgid, end_ns, registers),
        None => open.user_stack,
    };
    (user, kernel_stack(kernel, stacks))
}

/// The process of a thread whose user stack nobody has walked, and where the walk begins.
fn to_walk(args: &Args, open: &open_phase) -> Option<(u32, Registers)> {
    let registers = Registers {
        ip: open.ip,
        sp: open.sp,
        bp: open.bp,
        lr: open.lr,
        thread_pointer: open.thread_pointer,
        exact: open.exact != 0,
    };
    let has_none = open.ip == 0 || args.stacks.kernel_stacks;
    (!has_none && open.user_stack == 0).then_some((open.tgid, registers))
}

fn kernel_stack(kernel: &[u64], stacks: &mut StackTable) -> u64 {
    match kernel {
        [] => 0,
        kernel => stacks.insert_kernel(kernel),
    }
}

/// Learns the stacks of threads that wait, before a window opens or after its end, from what an iterator says of them.
pub(crate) fn describe_waiting(
    args: &Args,
    mut bytes: &[u8],
    stacks: &mut StackTable,
    known: &mut KnownStacks,
) -> Result<()> {
    let (mut tids, mut threads) = (Vec::new(), Vec::new());
    while let Some((open, kernel)) = next_open(&mut bytes)? {
        let kernel = kernel_stack(&kernel, stacks);
        match to_walk(args, &open) {
            Some(thread) => {
                tids.push((open.tid, kernel));
                threads.push(thread);
            }
            None => {
                known.insert(open.tid, (open.user_stack, kernel));
            }
        }
    }
    let walked = stacks.insert_all_blocked(monotonic_ns(), &threads);
    let walked = tids.into_iter().zip(walked);
    known.extend(walked.map(|((tid, kernel), user)| (tid, (user, kernel))));
    Ok(())
}

/// Threads that have not run since they were last told of, by another pass of the closing iterator.
pub(crate) fn still_open(mut bytes: &[u8]) -> Result<HashSet<u32>> {
    let mut still = HashSet::new();
    while let Some((open, _)) = next_open(&mut bytes)? {
        if open.is_known != 0 && open.ran_on == 0 {
            still.insert(open.tid);
        }
    }
    Ok(still)
}

/// An iterator's record, with its kernel addresses.
pub(crate) fn next_open(bytes: &mut &[u8]) -> Result<Option<(open_phase, Vec<u64>)>> {
    if bytes.len() < size_of::<open_phase>() {
        return Ok(None);
    }
    let open: open_phase = maps::decode(bytes)?;
    let rest = &bytes[size_of::<open_phase>()..];
    let kernel: Vec<u64> = words(rest).take(open.depth as usize).collect();
    *bytes = rest.get(kernel.len() * 8..).unwrap_or_default();
    Ok(Some((open, kernel)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_walked_on_leaving_stays_the_waits_own() {
        let mut open = open_phase {
            ip: 0x1000,
            ran_on: 1,
            ..open_phase::default()
        };
        assert_eq!(walked_on_leaving(&open), None, "nobody has walked it");
        open.user_stack = 7;
        assert_eq!(walked_on_leaving(&open), Some((7, 0)));
        open.user_stack = 0;
        open.is_new = 1;
        assert_eq!(walked_on_leaving(&open), Some((0, 0)), "it has none");
    }
}
