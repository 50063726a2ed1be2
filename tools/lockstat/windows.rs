//! A collection in windows: what a budget takes at their edges.

use std::mem::size_of;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::open_futex;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use trace::budget::{Sampler, Window, Windowed, open_edges_settled, shut_edges};
use trace::cost::Meter;
use trace::loader::section;
use trace::stacks::StackTable;
use trace::unwind::Registers;
use trace::window::monotonic_ns;
use trace::{iterate, maps};

use crate::args::Args;
use crate::harvest::raw_rows;
use crate::row::Identity;
use crate::weighted::Sums;

/// What events run, and what is detached between windows.
pub(crate) const GATED: [&str; 5] = [
    "lock_sched_switch",
    "lock_sched_switch_pre_5_18",
    "lock_sched_waking",
    "contention_begin",
    "contention_end",
];

/// The tool at the edge of a window.
pub(crate) struct Windows<'a> {
    pub(crate) skel: &'a mut LockstatSkel<'static>,
    pub(crate) stacks: &'a mut StackTable,
    pub(crate) sums: &'a mut Sums,
}

/// With a budget: the windows, the first of which is open.
pub(crate) fn sampler<'a>(
    args: &Args,
    skel: &mut LockstatSkel<'static>,
    stacks: &mut StackTable,
    meter: &'a Meter,
) -> Result<Option<(Sampler<'a>, Sums)>> {
    let mut sums = Sums::default();
    let who = ("lockstat", args.common.verbose);
    let windows = &mut Windows {
        skel,
        stacks,
        sums: &mut sums,
    };
    let sampler = args.budget.sampler(who, meter, &GATED, windows)?;
    Ok(sampler.map(|sampler| (sampler, sums)))
}

impl Windowed for Windows<'_> {
    fn object(&self) -> &Object {
        self.skel.object()
    }

    fn open(&mut self, length_ns: Option<u64>, _first: bool) -> Result<u64> {
        maps::clear_per_cpu(&self.skel.maps.idle_waits, 0)?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        // What ends from now on, until the window opens, is in none.
        (bss.window_start_ns, bss.window_end_ns, bss.edge_ns) = (0, 0, 0);
        let sleepers = iterate::run(self.skel.links.open_waits.as_ref())?;
        self.meet(&sleepers)?;
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let (start_ns, end_ns) = (&mut bss.window_start_ns, &mut bss.window_end_ns);
        // Threads that waited while we had a CPU go on first.
        Ok(open_edges_settled(start_ns, end_ns, length_ns))
    }

    fn shut(&mut self) -> Result<u64> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let now = shut_edges(&mut bss.window_end_ns);
        bss.open_epoch = bss.epoch;
        bss.edge_ns = bss.window_end_ns;
        iterate::run(self.skel.links.close_waits.as_ref())?;
        Ok(now)
    }

    fn take(&mut self, window: &Window) -> Result<()> {
        let homeless = self.sums.add(raw_rows(self.skel, 0)?, window);
        // Beside those of single windows, which are over.
        let losses = &mut section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?.lock_losses;
        losses.locks_full += homeless.locks.0;
        losses.locks_full_ns += homeless.locks.1;
        losses.waiters_full += homeless.waiters.0;
        losses.waiters_full_ns += homeless.waiters.1;
        losses.holders_full += homeless.holders;
        Ok(())
    }
}

impl Windows<'_> {
    /// Learns the stacks of threads that began to wait for a lock of their program between two windows.
    fn meet(&mut self, sleepers: &[u8]) -> Result<()> {
        let mut forgotten = 0;
        for bytes in sleepers.chunks_exact(size_of::<open_futex>()) {
            let open: open_futex = maps::decode(bytes)?;
            let registers = Registers {
                ip: open.ip,
                sp: open.sp,
                bp: open.bp,
                exact: false,
            };
            let stacks = &mut self.stacks;
            let stack = stacks.insert_blocked(open.tgid, monotonic_ns(), registers);
            let lock = Identity::from(&open.lock);
            forgotten += self.sums.meet(lock, open.tid, stack);
        }
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        bss.stack_losses.table_full += forgotten;
        Ok(())
    }
}
