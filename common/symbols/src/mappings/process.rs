//! One process ID: the address spaces that lived under it, one after another.

use std::collections::VecDeque;
use std::sync::Arc;

use super::held::Held;
use super::table::Table;
use super::{Backing, Mapping};

/// exec and PID reuse start a new one; a shell wrapper does 2–3.
const MAX_SPACES: usize = 8;
/// Mappings of a table that is copied because its process changes what it shared with its parent: 0.6 MB. It is also what
/// the BPF side lists of a process.
pub(super) const MAX_COPIED: usize = 4096;

/// One address space, from an exec, a fork or first sight until the next.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Unique over the run: two spaces of one PID have different code.
    pub(super) id: u32,
    pub(super) from_ns: u64,
    /// When `/proc/PID/maps` was read, 0 if never.
    pub(super) read_ns: u64,
    /// Whether everything mapped since `from_ns` is known: it began under our eyes, or its file was read.
    pub(super) complete: bool,
    pub(super) table: Arc<Table>,
}

/// What is known under one process ID.
#[derive(Debug, Default)]
pub(super) struct Process {
    spaces: VecDeque<Space>,
    /// Last exit; `None` while alive.
    pub(super) exited_ns: Option<u64>,
}

impl Process {
    pub(super) fn latest(&self) -> Option<&Space> {
        self.spaces.back()
    }

    pub(super) fn latest_mut(&mut self) -> Option<&mut Space> {
        self.spaces.back_mut()
    }

    /// Begins a new address space.
    pub(super) fn push(&mut self, space: Space) {
        if self.spaces.len() == MAX_SPACES {
            self.spaces.pop_front();
        }
        self.spaces.push_back(space);
    }

    /// When each of its spaces was left for the next, or ended with it; the oldest first.
    pub(super) fn ended_ns(&self) -> impl Iterator<Item = u64> {
        let left = self.spaces.iter().skip(1).map(|next| next.from_ns);
        left.chain(self.exited_ns)
    }

    /// Forgets the oldest space; returns whether any is left.
    pub(super) fn forget_oldest(&mut self) -> bool {
        self.spaces.pop_front();
        !self.spaces.is_empty()
    }

    /// Mappings held in all spaces.
    pub(super) fn weight(&self) -> usize {
        self.spaces.iter().map(|s| s.table.len()).sum()
    }

    /// The address space that was in use at `time_ns`.
    pub(super) fn at(&self, time_ns: u64) -> Option<&Space> {
        self.spaces.iter().rev().find(|s| s.from_ns <= time_ns)
    }

    pub(super) fn at_mut(&mut self, time_ns: u64) -> Option<&mut Space> {
        self.spaces.iter_mut().rev().find(|s| s.from_ns <= time_ns)
    }
}

impl Space {
    pub(super) fn new(id: u32, from_ns: u64, complete: bool, table: Arc<Table>) -> Self {
        Self {
            id,
            from_ns,
            read_ns: 0,
            complete,
            table,
        }
    }

    pub(super) fn find(&self, address: u64, time_ns: u64) -> Option<&Mapping> {
        self.table.find(address, time_ns)
    }

    /// The file that is nearest below an address.
    pub(super) fn below(&self, address: u64, time_ns: u64) -> Option<&Mapping> {
        let is_file = |mapping: &&Mapping| matches!(mapping.backing, Backing::File(_));
        self.table.below(address, time_ns).find(is_file)
    }

    /// Applies a mapping that the kernel reported; returns how many mappings had to be forgotten.
    pub(super) fn map(&mut self, mapping: Mapping, held: &Held) -> u64 {
        let read_ns = self.read_ns;
        let (table, given_up) = self.table_mut(held);
        given_up
            + if mapping.from_ns < read_ns {
                table.insert_older(mapping, read_ns)
            } else {
                table.insert(mapping)
            }
    }

    /// The table, to be changed: a copy where others share it. Returns also whether it was given up for an empty one, as
    /// too large to be copied: one call of each child would cost us megabytes. A sample that finds nothing then has the maps
    /// file read.
    pub(super) fn table_mut(&mut self, held: &Held) -> (&mut Table, u64) {
        let most = MAX_COPIED.min(held.room());
        let mut given_up = 0;
        if self.table.len() > most && Arc::get_mut(&mut self.table).is_none() {
            given_up = 1;
            self.table = Arc::new(Table::new(held));
        }
        (Arc::make_mut(&mut self.table), given_up)
    }
}

/// An exited process in the order of exits.
#[derive(Debug)]
pub(super) struct Exited {
    pub(super) tgid: u32,
    /// Tells it from a later process of that number.
    pub(super) time_ns: u64,
    pub(super) mappings: usize,
}
