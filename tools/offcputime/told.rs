//! Waits one by one, as the BPF side tells them, until it is known where threads are at home.
//!
//! They are kept until there are many, or the run ends. Where a thread is at home is judged then, by all of its waits so far.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use bpf::offcputime::OffcputimeSkel;
use bpf::offcputime::types::{told_mark, told_row, told_wait};
use loader::arrivals::Arrivals;
use loader::maps;
use profile::brief::place;
use stacks::StackTable;

use crate::offcputime::cycles::{Found, Home, MARKED, Mark, Told, Where, Work};
use crate::offcputime::gil;
use crate::offcputime::idle;
use crate::offcputime::marks::Marks;
use crate::offcputime::on_cpu::OnCpu;
use crate::offcputime::open::KnownStacks;
use crate::offcputime::pieces::{Spot, spot};
use crate::offcputime::quota;
use crate::offcputime::report::depth;
use crate::offcputime::row::{Row, row_of};

/// Waits and calls that are kept before threads' homes are judged, of 40 bytes each, calls of 100.
const MOST_KEPT: usize = 1 << 18;
/// Most rows, and of them by the files and connections that their waits are for.
const MOST_ROWS: usize = 1 << 16;
const MOST_OF_ENDPOINTS: usize = MOST_ROWS / 2;

enum Record {
    Row(Box<told_row>),
    Wait(told_wait),
    Mark(told_mark),
}

// A record is known by its size.
const _: () = assert!(
    size_of::<told_wait>() != size_of::<told_mark>()
        && size_of::<told_row>() != size_of::<told_wait>()
        && size_of::<told_row>() != size_of::<told_mark>()
);

/// An event in its order.
enum Event {
    Wait(Told),
    Mark(Box<Mark>),
    /// A window's begin and end.
    Window(u64, u64),
}

impl Event {
    fn time_ns(&self) -> u64 {
        match self {
            Self::Wait(told) => told.end_ns,
            Self::Mark(mark) => mark.time_ns,
            Self::Window(_, end_ns) => *end_ns,
        }
    }
}

/// The same place of one thread.
type Key = (u32, Spot);

/// Waits on their way to pieces of work.
pub(crate) struct Waits {
    /// The functions that begin and end work, in words.
    marked: Option<Arc<str>>,
    ring: Arrivals<Record>,
    kept: Vec<Event>,
    rows: Vec<Row>,
    numbers: HashMap<Key, u32>,
    /// Numbers of rows by the BPF side's ids, which are another window's later.
    ids: HashMap<u64, u32>,
    work: Work,
    rows_full: u64,
}

impl Waits {
    pub(crate) fn listen(skel: &OffcputimeSkel<'_>, marks: Option<&Marks>) -> Result<Self> {
        let ring = Arrivals::open_with(&skel.maps.told_waits, decode).context("ring of waits")?;
        Ok(Self {
            marked: marks.map(|marks| marks.to_string().into()),
            ring,
            kept: Vec::new(),
            rows: Vec::new(),
            numbers: HashMap::new(),
            ids: HashMap::new(),
            work: Work::default(),
            rows_full: 0,
        })
    }

    /// Becomes readable when there is much to take in.
    pub(crate) fn fd(&self) -> std::os::fd::RawFd {
        self.ring.fd()
    }

    /// Takes in what has come. `known`: stacks of waits that were under way when the window opened.
    pub(crate) fn absorb(&mut self, known: &KnownStacks) {
        for record in self.ring.take() {
            match record {
                Record::Row(row) => {
                    if let Some(number) = self.number(row_of(&row.key, known)) {
                        self.ids.insert(row.id, number);
                    }
                }
                Record::Wait(wait) => self.keep(&wait),
                Record::Mark(mark) => self.kept.push(Event::Mark(Box::new(mark_of(&mark)))),
            }
        }
    }

    /// Adds samples of threads on CPUs, at least those that were taken before the waits that have been taken in: these can be judged now.
    pub(crate) fn add_samples(
        &mut self,
        samples: impl Iterator<Item = OnCpu>,
        stacks: &mut StackTable,
    ) {
        samples.for_each(|sample| self.work.sample(sample));
        if self.kept.len() >= MOST_KEPT {
            self.judge(stacks);
        }
    }

    fn keep(&mut self, wait: &told_wait) {
        // Its row found no room, which its thread's next wait shows.
        let Some(row) = self.ids.get(&wait.row) else {
            return;
        };
        self.push(Told {
            row: *row,
            number: wait.number,
            off_ns: wait.off_ns,
            end_ns: wait.end_ns,
            runqueue_ns: wait.runqueue_ns,
        });
    }

    fn push(&mut self, told: Told) {
        let row = &mut self.rows[told.row as usize];
        let ns = told.end_ns.saturating_sub(told.off_ns);
        row.blocked_ns += ns.saturating_sub(told.runqueue_ns);
        row.runqueue_ns += told.runqueue_ns;
        row.count += 1;
        self.kept.push(Event::Wait(told));
    }

    fn number(&mut self, mut row: Row) -> Option<u32> {
        let key = (row.task.tid, spot(&row));
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        if row.endpoint != 0 && self.rows.len() >= MOST_OF_ENDPOINTS {
            row.endpoint = 0;
            return self.number(row);
        }
        if self.rows.len() >= MOST_ROWS {
            self.rows_full += 1;
            return None;
        }
        let number = u32::try_from(self.rows.len()).ok()?;
        self.rows.push(row);
        self.numbers.insert(key, number);
        Some(number)
    }

    /// A window from `start_ns` to `end_ns` has been taken in; `open` are rows of which some are of waits that its end cut.
    pub(crate) fn end_window<'a>(
        &mut self,
        open: impl Iterator<Item = &'a Row>,
        (start_ns, end_ns): (u64, u64),
    ) {
        for row in open {
            let Some(number) = row.open_number else {
                continue;
            };
            let ns = row.blocked_ns + row.runqueue_ns;
            if let Some(at) = self.number(row.without_times()) {
                self.push(Told {
                    row: at,
                    number,
                    off_ns: end_ns.saturating_sub(ns),
                    end_ns,
                    runqueue_ns: row.runqueue_ns,
                });
            }
        }
        self.kept.push(Event::Window(start_ns, end_ns));
        // The table that they were ids of is empty now.
        self.ids.clear();
    }

    /// Homes of all rows: their numbers, of those that are some.
    fn homes(&mut self, stacks: &mut StackTable) -> Vec<Option<u32>> {
        if self.marked.is_some() {
            return vec![None; self.rows.len()];
        }
        let depths: Vec<Option<usize>> = self.rows.iter().map(|row| depth(row, stacks)).collect();
        let homes = idle::homes(&self.rows, &depths);
        let rows = self.rows.iter().zip(homes);
        rows.map(|(row, is_home)| {
            let user = stacks.user_names(row.user);
            let is_gil = gil::is_for_interpreter(row.wait, &user);
            if !is_home || is_gil || idle::is_in_go(&user) {
                return None;
            }
            let kernel = stacks.kernel_names(row.kernel);
            let function = kernel.last().map_or("", |leaf| &leaf.name);
            let name = place(&kernel, &user).map(|name| name.as_ref().into());
            self.work.home(Home {
                tgid: row.task.tgid,
                kind: quota::reason(row.wait, function, false).name(),
                place: name,
            })
        })
        .collect()
    }

    /// Makes work of what is kept.
    fn judge(&mut self, stacks: &mut StackTable) {
        let homes = self.homes(stacks);
        let mut kept = std::mem::take(&mut self.kept);
        let until_ns = kept.iter().map(Event::time_ns).max();
        for event in kept.drain(..) {
            match event {
                Event::Window(start_ns, end_ns) => self.work.cut(start_ns, end_ns),
                Event::Mark(mark) => self.mark(&mark),
                Event::Wait(told) => {
                    let row = &self.rows[told.row as usize];
                    let at = Where {
                        tid: row.task.tid,
                        comm: &row.task.comm,
                        spot: spot(row),
                        home: homes[told.row as usize],
                    };
                    self.work.add(&told, &at);
                }
            }
        }
        self.work.forget_samples(until_ns.unwrap_or(0));
        // Its room is for the next ones.
        self.kept = kept;
    }

    fn mark(&mut self, mark: &Mark) {
        let Some(marked) = &self.marked else {
            return;
        };
        let home = Home {
            tgid: mark.tgid,
            kind: MARKED,
            place: Some(Arc::clone(marked)),
        };
        if let Some(home) = self.work.home(home) {
            self.work.mark(mark, home);
        }
    }

    /// Everything, once all windows are over.
    pub(crate) fn finish(mut self, stacks: &mut StackTable) -> Found {
        self.judge(stacks);
        let mut found = self.work.finish(self.rows_full);
        found.marked = self.marked;
        found
    }
}

fn decode(bytes: &[u8]) -> Option<Record> {
    let record = match bytes.len() {
        len if len == size_of::<told_wait>() => Record::Wait(maps::decode(bytes).ok()?),
        len if len == size_of::<told_mark>() => Record::Mark(maps::decode(bytes).ok()?),
        _ => Record::Row(Box::new(maps::decode(bytes).ok()?)),
    };
    Some(record)
}

fn mark_of(mark: &told_mark) -> Mark {
    Mark {
        tgid: mark.tgid,
        tid: mark.tid,
        comm: mark.comm,
        time_ns: mark.time_ns,
        number: mark.number,
        waits: mark.waits,
        is_end: mark.is_end != 0,
        is_other: mark.is_other != 0,
    }
}
