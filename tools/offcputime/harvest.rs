//! What the BPF side has gathered, as plain data.

use std::collections::HashMap;
use std::mem::size_of;

use anyhow::Result;
use bpf::offcputime::OffcputimeSkel;
use bpf::offcputime::types::{
    offcputime_key, offcputime_totals, offcputime_value, open_phase, wait_call,
};
use budget::Estimate;
use budget::meter::count_skipped;
use host::clock::{Edges, monotonic_ns};
use host::task::comm_text;
use host::waits::Wait;
use libbpf_rs::skel::Skel;
use loader::counters::Counters;
use loader::maps;
use loader::section;
use profile::losses::Losses;
use profile::model::Task;
use session::progress::State;
use stacks::unwind::Registers;
use stacks::{StackTable, words};

use crate::offcputime::args::Args;
use crate::offcputime::losses::{IN_ACCOUNTING, Lost, NEGATIVE};

/// Time of one thread on one pair of stacks.
pub struct Row {
    /// The thread.
    pub task: Task,
    /// What the kernel knows of why it left its CPU.
    pub wait: Wait,
    /// User stack's id in the table of stacks; 0: none.
    pub user: u64,
    /// Kernel stack's id; 0: none.
    pub kernel: u64,
    /// Id of the waker's stack; 0: none.
    pub waker: u64,
    /// Until it was made runnable, ns.
    pub blocked_ns: u64,
    /// From then on until it had a CPU, ns.
    pub runqueue_ns: u64,
    /// Waits that are over, and the one that is open at the end.
    pub count: u64,
    /// One of them is open at the end.
    pub is_open: bool,
}

impl Row {
    /// Place among the rows of a report: those of equal runs stand in the same order.
    pub(crate) fn place(&self) -> impl Ord + '_ {
        let Wait {
            flags,
            syscall,
            file_type,
            futex_op,
            futex_value,
        } = self.wait;
        let wait = (syscall, file_type, futex_op, futex_value, flags);
        (&self.task, wait, self.user, self.kernel, self.waker)
    }
}

/// Where the targets' time inside the window went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accounting {
    /// Threads that were targets at some time.
    pub threads: u64,
    /// Sum of their times inside the window.
    pub lifetime_ns: u64,
    /// On a CPU, ns.
    pub oncpu_ns: u64,
    /// Runnable without one, ns.
    pub runqueue_ns: u64,
    /// Neither, ns.
    pub blocked_ns: u64,
    /// Between switches that were not seen.
    pub unseen_ns: u64,
    /// Intervals outside -m, -M and --state, which have no rows.
    pub filtered: u64,
    /// Their time, ns.
    pub filtered_ns: u64,
    /// Switches and wakeups.
    pub events: u64,
    /// Of all that, what has no row.
    pub lost: Lost,
}

impl Accounting {
    /// Time that the phases do not explain, ns; negative when they explain too much.
    pub fn residual_ns(&self) -> i64 {
        let explained = self.oncpu_ns + self.runqueue_ns + self.blocked_ns + self.unseen_ns;
        self.lifetime_ns.cast_signed() - explained.cast_signed()
    }
}

/// Everything a run found.
pub struct Harvest {
    /// By their places, once windows are added up.
    pub rows: Vec<Row>,
    /// Sums of all targets.
    pub accounting: Accounting,
    /// Seen and not counted.
    pub losses: Losses,
    /// Begin and end.
    pub window: Edges,
    /// Intervals that were still open at the end.
    pub open: u64,
    /// Where not everything was looked at.
    pub estimates: Option<Estimates>,
}

/// How sure the totals are.
pub struct Estimates {
    /// On a CPU, ns.
    pub oncpu: Estimate,
    /// Runnable without one, ns.
    pub runqueue: Estimate,
    /// Neither, ns.
    pub blocked: Estimate,
}

impl Harvest {
    /// Reads the tables, and takes what every target is still waiting for from what the closing iterator said, with the stacks that
    /// are known. No losses yet.
    pub(crate) fn gather(
        args: &Args,
        skel: &OffcputimeSkel<'_>,
        mut open: Open<'_>,
        (closing, (start_ns, end_ns)): (&[u8], (u64, u64)),
    ) -> Result<Self> {
        let mut harvest = Self {
            rows: Vec::new(),
            accounting: totals(skel)?,
            losses: Losses::default(),
            window: Edges { start_ns, end_ns },
            open: 0,
            estimates: None,
        };
        let entries = maps::drain::<offcputime_key, offcputime_value>(&skel.maps.offcpu_time)?;
        harvest.rows.extend(
            entries
                .iter()
                .map(|(key, value)| finished_row(key, value, open.known)),
        );
        let closed_late = harvest.rows.iter().filter(|row| row.is_open);
        harvest.open = closed_late.map(|row| row.count).sum();
        harvest.add_open_phases(args, closing, &mut open, end_ns)?;
        Ok(harvest)
    }

    fn add_open_phases(
        &mut self,
        args: &Args,
        mut bytes: &[u8],
        stacks: &mut Open<'_>,
        end_ns: u64,
    ) -> Result<()> {
        let mut waiting = KnownStacks::new();
        while let Some((open, kernel)) = next_open(&mut bytes)? {
            self.accounting.threads += 1;
            self.accounting.lifetime_ns += open.lifetime_ns;
            match open.phase {
                phase::RUNNING => self.accounting.oncpu_ns += open.phase_ns,
                phase::RUNNABLE => self.accounting.runqueue_ns += open.phase_ns,
                _ => self.accounting.blocked_ns += open.phase_ns,
            }
            if open.phase == phase::RUNNING {
                continue;
            }
            let ids = stacks.of(args, &open, &kernel, end_ns);
            let goes_on = ids.filter(|_| open.ran_on == 0);
            waiting.extend(goes_on.map(|ids| (open.tid, ids)));
            let off_ns = open.blocked_ns + open.runqueue_ns;
            if open.wanted == 0 {
                self.accounting.filtered += 1;
                self.accounting.filtered_ns += off_ns;
            } else if let Some(ids) = ids {
                self.open += 1;
                self.rows.push(open_row(&open, ids));
            } else {
                self.accounting.lost.unreported += 1;
                self.accounting.lost.unreported_ns += off_ns;
            }
        }
        // Others have run, or are gone.
        *stacks.known = waiting;
        Ok(())
    }

    pub(crate) fn count_losses(
        &mut self,
        skel: &OffcputimeSkel<'_>,
        stacks: &StackTable,
    ) -> Result<()> {
        let losses = &mut self.losses;
        count_skipped(skel.object(), losses);
        self.accounting
            .lost
            .count(losses, self.accounting.unseen_ns);
        Counters::new(skel.object(), &[NEGATIVE], &IN_ACCOUNTING)?.count(losses)?;
        stacks.count_losses(losses);
        Ok(())
    }
}

/// `enum phase` of the BPF side.
mod phase {
    pub(super) const RUNNING: u8 = 1;
    pub(super) const RUNNABLE: u8 = 3;
}

/// What the progress line shows.
pub(crate) fn progress(skel: &OffcputimeSkel<'_>, stacks: &StackTable) -> Result<State> {
    let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
    let lost = bss.losses.rows_full
        + bss.losses.unreported
        + bss.stack_losses.ring_full
        + bss.stack_losses.table_full;
    Ok(State {
        events: totals(skel)?.events,
        stacks: Some(stacks.len()),
        lost,
        ..State::default()
    })
}

pub(crate) fn totals(skel: &OffcputimeSkel<'_>) -> Result<Accounting> {
    let per_cpu: Vec<offcputime_totals> = maps::per_cpu(&skel.maps.totals, 0)?;
    let lost = Lost::read(skel)?;
    let none = Accounting {
        lost,
        ..Accounting::default()
    };
    Ok(per_cpu.iter().fold(none, |sum, cpu| Accounting {
        threads: sum.threads + cpu.threads_exited,
        lifetime_ns: sum.lifetime_ns + cpu.lifetime_ns,
        oncpu_ns: sum.oncpu_ns + cpu.oncpu_ns,
        runqueue_ns: sum.runqueue_ns + cpu.runqueue_ns,
        blocked_ns: sum.blocked_ns + cpu.blocked_ns,
        unseen_ns: sum.unseen_ns + cpu.unseen_ns,
        filtered: sum.filtered + cpu.filtered,
        filtered_ns: sum.filtered_ns + cpu.filtered_ns,
        events: sum.events + cpu.events,
        lost,
    }))
}

fn finished_row(key: &offcputime_key, value: &offcputime_value, known: &KnownStacks) -> Row {
    let user = match known.get(&key.tid) {
        Some((user, _)) if key.is_known != 0 => *user,
        _ => key.user_stack,
    };
    Row {
        task: Task {
            comm: comm_text(&key.comm),
            tgid: key.tgid,
            tid: key.tid,
        },
        wait: wait(key.call, key.wait_flags),
        user,
        kernel: key.kernel_stack,
        waker: key.waker,
        blocked_ns: value.blocked_ns,
        runqueue_ns: value.runqueue_ns,
        count: value.count,
        is_open: key.is_open != 0,
    }
}

/// User and kernel stack of each thread's open wait.
pub(crate) type KnownStacks = HashMap<u32, (u64, u64)>;

/// Where the stacks of open waits are.
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
    fn of(
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
        let is_over = open.ran_on != 0;
        (!is_over).then(|| open_stacks(args, open, kernel, self.table, end_ns))
    }
}

fn open_stacks(
    args: &Args,
    open: &open_phase,
    kernel: &[u64],
    stacks: &mut StackTable,
    end_ns: u64,
) -> (u64, u64) {
    let registers = Registers {
        ip: open.ip,
        sp: open.sp,
        bp: open.bp,
        exact: open.exact != 0,
    };
    let user = match open.ip {
        0 => 0,
        _ if args.stacks.kernel_stacks => 0,
        _ if open.user_stack != 0 => open.user_stack,
        _ => stacks.insert_blocked(open.tgid, end_ns, registers),
    };
    let kernel = match kernel {
        [] => 0,
        kernel => stacks.insert_kernel(kernel),
    };
    (user, kernel)
}

/// Learns the stacks of threads that wait, before a window opens or after its end, from what an iterator says of them.
pub(crate) fn describe_waiting(
    args: &Args,
    mut bytes: &[u8],
    stacks: &mut StackTable,
    known: &mut KnownStacks,
) -> Result<()> {
    while let Some((open, kernel)) = next_open(&mut bytes)? {
        let ids = open_stacks(args, &open, &kernel, stacks, monotonic_ns());
        known.insert(open.tid, ids);
    }
    Ok(())
}

/// An iterator's record, with its kernel addresses.
fn next_open(bytes: &mut &[u8]) -> Result<Option<(open_phase, Vec<u64>)>> {
    if bytes.len() < size_of::<open_phase>() {
        return Ok(None);
    }
    let open: open_phase = maps::decode(bytes)?;
    let rest = &bytes[size_of::<open_phase>()..];
    let kernel: Vec<u64> = words(rest).take(open.depth as usize).collect();
    *bytes = rest.get(kernel.len() * 8..).unwrap_or_default();
    Ok(Some((open, kernel)))
}

fn open_row(open: &open_phase, (user, kernel): (u64, u64)) -> Row {
    Row {
        task: Task {
            comm: comm_text(&open.comm),
            tgid: open.tgid,
            tid: open.tid,
        },
        wait: wait(open.call, open.wait_flags),
        user,
        kernel,
        waker: 0,
        blocked_ns: open.blocked_ns,
        runqueue_ns: open.runqueue_ns,
        count: 1,
        is_open: true,
    }
}

fn wait(call: wait_call, flags: u8) -> Wait {
    Wait {
        flags,
        syscall: call.syscall,
        file_type: call.file_type,
        futex_op: call.futex_op,
        futex_value: call.futex_value,
    }
}
