//! Times of single samples: for `-o FILE.perf.txt`, and for tools that ask for them.

use std::collections::HashMap;

use anyhow::Result;
use bpf::profile::ProfileSkel;
use bpf::profile::types::moment;
use hist::random::round_fairly;
use host::task::comm_text;
use loader::arrivals::Arrivals;
use loader::section;
use profile::losses::Losses;
use profile::model::Task;
use profile::sums::sums;
use profile::write::Moment;

use crate::profile::args::Args;
use crate::profile::harvest::Row;

/// Most that are kept, of 32 bytes each: what 2 CPUs make in eleven hours at 99 Hz.
const MOST: usize = 8 << 20;

/// What tells rows apart: process, thread, name, kernel stack, user stack.
type Key = (u32, u32, [u8; 16], u64, u64);

/// A sample of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    /// `CLOCK_MONOTONIC`.
    pub(crate) time_ns: u64,
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    /// Stacks' ids, as [`Row`] has them.
    pub(crate) user: u64,
    pub(crate) kernel: u64,
}

impl From<&moment> for Single {
    fn from(moment: &moment) -> Self {
        Self {
            time_ns: moment.time_ns,
            tgid: moment.key.tgid,
            tid: moment.tid,
            user: moment.key.user_stack,
            kernel: moment.key.kernel_stack,
        }
    }
}

/// Samples in the order of their times, each with the row that it is of.
#[derive(Default)]
pub(crate) struct Moments {
    arrivals: Option<Arrivals<moment>>,
    numbers: HashMap<Key, usize>,
    pub(crate) rows: Vec<Row>,
    pub(crate) all: Vec<Moment>,
    /// Samples are counted by [`Self::count_until`], and not kept.
    are_counted: bool,
    /// Times and processes of those that are not counted yet.
    later: Vec<(u64, u32)>,
    /// Samples that [`Self::take_singles`] has not given away yet; `None`: it gives none, and they are kept.
    singles: Option<Vec<Single>>,
    too_many: u64,
    random: u64,
}

impl Moments {
    pub(crate) fn open(args: &Args, skel: &ProfileSkel<'_>) -> Result<Self> {
        let wanted = args.keeps_moments();
        let arrivals = wanted.then(|| Arrivals::open(&skel.maps.moments));
        Ok(Self {
            arrivals: arrivals.transpose()?,
            are_counted: args.moments,
            singles: args.singles.then(Vec::new),
            ..Self::default()
        })
    }

    /// Takes in what has come since the last call.
    pub(crate) fn absorb(&mut self) {
        self.absorb_weighted(1.0);
    }

    /// The same of a window, in which each sample stands for so many.
    pub(crate) fn absorb_weighted(&mut self, weight: f64) {
        let arrived = self.arrivals.as_ref().map(Arrivals::take);
        let arrived = arrived.unwrap_or_default();
        if let Some(singles) = &mut self.singles {
            singles.extend(arrived.iter().map(Single::from));
        }
        if self.are_counted {
            let times = arrived.iter();
            self.later
                .extend(times.map(|moment| (moment.time_ns, moment.key.tgid)));
        }
        if self.are_counted || self.singles.is_some() {
            return;
        }
        for moment in arrived {
            if self.all.len() >= MOST {
                self.too_many += 1;
                continue;
            }
            let sample = self.row(&moment);
            self.random |= 1;
            let weight = round_fairly(moment.weight as f64 * weight, &mut self.random);
            self.all.push(Moment {
                time_ns: moment.time_ns,
                cpu: moment.cpu,
                tid: moment.tid,
                weight,
                sample,
            });
        }
    }

    /// Number of samples of each process until `end_ns` that no earlier call has counted; only times of later ones are kept.
    pub(crate) fn count_until(&mut self, end_ns: u64) -> HashMap<u32, u64> {
        self.absorb();
        let is_over = |(time_ns, _): &mut (u64, u32)| *time_ns <= end_ns;
        let over = self.later.extract_if(.., is_over);
        sums(over.map(|(_, tgid)| (tgid, 1)))
    }

    /// Those that have come and that no earlier call has taken.
    pub(crate) fn take_singles(&mut self) -> Vec<Single> {
        self.absorb();
        self.singles
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    fn row(&mut self, moment: &moment) -> usize {
        let key = &moment.key;
        let (user, kernel) = (key.user_stack, key.kernel_stack);
        let number = self
            .numbers
            .entry((key.tgid, key.tid, key.comm, kernel, user))
            .or_insert(self.rows.len());
        if *number == self.rows.len() {
            self.rows.push(Row {
                task: Task::new(comm_text(&key.comm), key.tgid, key.tid),
                user,
                kernel,
                samples: 0,
                weight: 0,
            });
        }
        let row = &mut self.rows[*number];
        row.samples += 1;
        row.weight = row.weight.saturating_add(moment.weight);
        *number
    }

    /// The last ones, and how many are missing. CPUs send at the same time: order comes now.
    pub(crate) fn finish(&mut self, skel: &ProfileSkel<'_>, losses: &mut Losses) -> Result<()> {
        self.absorb();
        self.all.sort_by_key(|moment| moment.time_ns);
        let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
        losses.count(
            "moments_full",
            "times of samples: ring full",
            bss.moments_full,
        );
        losses.count("moments_many", "times of samples: too many", self.too_many);
        Ok(())
    }
}
