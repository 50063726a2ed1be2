//! lockstat's engine as one of several: who waited where for which lock, and who held it.

use std::sync::Arc;

use anyhow::{Context, Result};
use budget::Told;
use host::clock::monotonic_ns;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use loader::section;
use profile::frame::Frame;
use profile::losses::Losses;
use profile::model::Task;

use crate::lockstat::engine::Lockstat;
use crate::lockstat::futex::Class;
use crate::lockstat::harvest::Harvest;
use crate::lockstat::merge::merge_in_processes;
use crate::lockstat::row::{For, LockRow, SURE};

/// Waits of a thread for one lock in one place.
pub(crate) struct Waited {
    pub(crate) task: Task,
    /// Stacks, of the kernel and of the program; empty where none was walked.
    pub(crate) kernel: Arc<[Frame]>,
    pub(crate) user: Arc<[Frame]>,
    pub(crate) count: u64,
    /// Time without what passed between its end and a CPU, ns.
    pub(crate) ns: u64,
}

/// A lock, or several of a kind, and the waits for it.
pub(crate) struct Contended {
    pub(crate) row: LockRow,
    pub(crate) waits: Vec<Waited>,
}

impl Contended {
    /// Tells if its threads wait for each other, whatever the shape of their waits: it is a lock or a barrier, and no part that locks
    /// and queues of work are made of, unless they take turns with it. A class of one's own rules is one, also where its rule has no
    /// role.
    pub(crate) fn is_lock(&self) -> bool {
        let mut classes = Class::FAMILIES.into_iter();
        let is_part = |class: Class| class.is_material() && class != Class::Barrier;
        let is_part = classes.any(|class| is_part(class) && class.word() == self.row.class);
        self.row.what == For::Others
            && self.row.confidence >= SURE
            && (!is_part || self.row.in_turns)
    }
}

/// Everything that was found.
#[derive(Default)]
pub(crate) struct Found {
    /// Without locks that threads wait for work at, those of a process that are small and alike as one; the longest total wait first.
    pub(crate) locks: Vec<Contended>,
    /// Waits that are known to be for work, and not by their shape.
    pub(crate) work: Vec<Waited>,
}

impl Lockstat<'_> {
    /// Its programs and maps.
    pub(crate) fn object(&self) -> &Object {
        self.skel.object()
    }

    /// The place where its programs read since when events count. They count until it halts: `end_ns` is nobody's.
    ///
    /// # Errors
    ///
    /// The programs' memory cannot be mapped.
    pub(crate) fn told<'s>(&'s mut self, end_ns: &'s mut u64) -> Result<Told<'s>> {
        let bss = section(self.skel.maps.bss_data.as_deref_mut(), ".bss")?;
        let start_ns = &mut bss.window_start_ns;
        Ok(Told { start_ns, end_ns })
    }

    /// Takes in stacks and locks' addresses, and follows targets.
    ///
    /// # Errors
    ///
    /// Its iterators fail.
    pub(crate) fn look(&mut self) -> Result<()> {
        self.absorb()?;
        self.follow_targets()
    }

    /// Counts no longer.
    ///
    /// # Errors
    ///
    /// Its iterators fail.
    pub(crate) fn halt(&mut self) -> Result<()> {
        let bss = section(self.skel.maps.bss_data.as_deref(), ".bss")?;
        let start_ns = bss.window_start_ns;
        self.ended = Some(self.turn(start_ns, monotonic_ns().max(start_ns), true)?);
        Ok(())
    }

    /// Everything, after it has been halted.
    ///
    /// # Errors
    ///
    /// The tables cannot be read.
    pub(crate) fn found(&mut self) -> Result<(Found, Losses)> {
        let ended = self.ended.take().context("it counts still")?;
        self.absorb()?;
        let harvest = Harvest::take(&self.skel, &mut self.stacks, &mut self.names, ended)?;
        let rows = harvest.rows.into_iter();
        let rows = rows.filter(|row| row.what != For::Work && row.total_ns > 0);
        let rows = merge_in_processes(rows).into_iter();
        let locks = rows.map(|row| self.contended(row)).collect();
        let work = harvest.work.iter().filter(|row| row.identity.is_futex());
        let work = work.flat_map(|row| self.waits_of(row)).collect();
        let losses = self.ledger()?.losses;
        Ok((Found { locks, work }, losses))
    }

    fn contended(&mut self, row: LockRow) -> Contended {
        Contended {
            waits: self.waits_of(&row),
            row,
        }
    }

    fn waits_of(&mut self, row: &LockRow) -> Vec<Waited> {
        // An interrupt's wait has nothing to do with the thread that it interrupted.
        let waiters = row.waiters.iter().filter(|waiter| !waiter.in_interrupt);
        let waits = waiters.map(|waiter| Waited {
            task: waiter.task.clone(),
            kernel: self.stacks.kernel_names(waiter.kernel),
            user: self.stacks.user_names(waiter.user),
            count: waiter.count,
            ns: waiter.total_ns.saturating_sub(waiter.run_queue_ns),
        });
        waits.collect()
    }
}
