//! What the BPF side has gathered, as plain data.

use std::collections::HashMap;

use anyhow::Result;
use bpf::offcputime::OffcputimeSkel;
use bpf::offcputime::types::{offcputime_key, offcputime_totals, offcputime_value};
use budget::Estimate;
use budget::meter::count_skipped;
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use loader::counters::Counters;
use loader::maps;
use loader::section;
use profile::losses::Losses;
use session::progress::State;
use session::quotas::UsedUp;
use stacks::StackTable;

use crate::offcputime::args::Args;
use crate::offcputime::cycles;
use crate::offcputime::details::{Details, ProcessTime};
use crate::offcputime::losses::{IN_ACCOUNTING, Lost, NEGATIVE, OF_DETAILS};
use crate::offcputime::open::{KnownStacks, Open, next_open, still_open, walked_on_leaving};
use crate::offcputime::row::{Row, finished_row, open_row};

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

impl From<ProcessTime> for Accounting {
    /// Facts of each process.
    fn from(time: ProcessTime) -> Self {
        Self {
            threads: time.threads,
            lifetime_ns: time.lifetime_ns,
            oncpu_ns: time.oncpu_ns,
            unseen_ns: time.unseen_ns,
            lost: Lost {
                unreported_ns: time.lost_ns,
                ..Lost::default()
            },
            ..Self::default()
        }
    }
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
    /// Groups whose CPU quota threads lacked.
    pub quotas: Vec<UsedUp>,
    /// Details, if they were asked for.
    pub details: Details,
    /// Pieces of work, if they were.
    pub cycles: Option<cycles::Found>,
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
        again: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let mut harvest = Self {
            rows: Vec::new(),
            accounting: totals(skel)?,
            losses: Losses::default(),
            window: Edges { start_ns, end_ns },
            open: 0,
            estimates: None,
            quotas: Vec::new(),
            details: Details::default(),
            cycles: None,
        };
        let entries = maps::drain::<offcputime_key, offcputime_value>(&skel.maps.offcpu_time)?;
        let mut lengths = HashMap::new();
        if args.details {
            (harvest.details, lengths) = Details::drain(skel)?;
        }
        harvest.rows.extend(entries.iter().map(|(key, value)| {
            let lengths = lengths.remove(&value.id).unwrap_or_default();
            finished_row(key, value, lengths, open.known)
        }));
        let closed_late = harvest.rows.iter().filter(|row| row.is_open);
        harvest.open = closed_late.map(|row| row.count).sum();
        harvest.add_open_phases(args, closing, &mut open, end_ns, again)?;
        Ok(harvest)
    }

    fn add_open_phases(
        &mut self,
        args: &Args,
        mut bytes: &[u8],
        stacks: &mut Open<'_>,
        end_ns: u64,
        again: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<()> {
        let mut waiting = KnownStacks::new();
        let mut fresh = HashMap::new();
        while let Some((open, kernel)) = next_open(&mut bytes)? {
            self.accounting.threads += 1;
            self.accounting.lifetime_ns += open.lifetime_ns;
            let is_running = open.phase == phase::RUNNING;
            if args.details {
                self.details.add_living(&open, is_running);
            }
            match open.phase {
                phase::RUNNING => self.accounting.oncpu_ns += open.phase_ns,
                phase::RUNNABLE => self.accounting.runqueue_ns += open.phase_ns,
                _ => self.accounting.blocked_ns += open.phase_ns,
            }
            if is_running {
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
                let lengths = args.details.then(|| self.details.add_open(&open));
                self.rows
                    .push(open_row(&open, ids, lengths.unwrap_or_default()));
                if open.is_known == 0 && open.ip != 0 {
                    fresh.insert(open.tid, walked_on_leaving(&open));
                }
            } else {
                self.accounting.lost.unreported += 1;
                self.accounting.lost.unreported_ns += off_ns;
                self.details.add_lost(open.tgid, off_ns);
            }
        }
        if !fresh.is_empty() {
            let still = still_open(&again()?)?;
            fresh.retain(|tid, _| !still.contains(tid));
            waiting.retain(|tid, _| !fresh.contains_key(tid));
            self.drop_overtaken(&fresh);
        }
        // Others have run, or are gone.
        *stacks.known = waiting;
        Ok(())
    }

    /// Threads that ran while their stacks were walked have those of any moment, but for a user stack that was walked before.
    fn drop_overtaken(&mut self, threads: &HashMap<u32, Option<(u64, u64)>>) {
        let mut lost = Vec::new();
        self.rows.retain_mut(|row| {
            let Some(known) = threads.get(&row.task.tid).filter(|_| row.is_open) else {
                return true;
            };
            if let Some((user, kernel)) = *known {
                (row.user, row.kernel) = (user, kernel);
                return true;
            }
            lost.push((row.task.tgid, row.count, row.blocked_ns + row.runqueue_ns));
            false
        });
        for (tgid, count, ns) in lost {
            self.open -= count;
            self.accounting.lost.unreported += count;
            self.accounting.lost.unreported_ns += ns;
            self.details.add_lost(tgid, ns);
        }
    }

    pub(crate) fn count_losses(
        &mut self,
        args: &Args,
        skel: &OffcputimeSkel<'_>,
        stacks: &StackTable,
    ) -> Result<()> {
        let losses = &mut self.losses;
        count_skipped(skel.object(), losses);
        self.accounting
            .lost
            .count(losses, self.accounting.unseen_ns);
        let of_details = OF_DETAILS.map(|(name, _)| name);
        let (own, elsewhere) = match args.details {
            true => (
                [NEGATIVE].into_iter().chain(OF_DETAILS).collect(),
                IN_ACCOUNTING.to_vec(),
            ),
            false => (vec![NEGATIVE], [&IN_ACCOUNTING[..], &of_details].concat()),
        };
        Counters::new(skel.object(), &own, &elsewhere)?.count(losses)?;
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
