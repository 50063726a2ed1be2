//! All processes' mappings: snapshots, side-band events and look-ups by time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use host::clock::monotonic_ns;

use super::forgotten::Forgotten;
use super::held::Held;
use super::paths::Paths;
use super::process::{Exited, Process, Space};
use super::sideband::Stream;
use super::table::Table;
use super::{Backing, Mapping, maps};

/// How often one process' maps file is read again because an address was not found.
const REREAD_NS: u64 = 100_000_000;
/// Processes that are looked at for each space that ended since room was last made, so that it stays cheap.
const LOOKED_AT: usize = 64;

/// What could not be known about mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappingLosses {
    /// Why there is no side-band stream.
    pub(crate) stream: Option<String>,
    /// Side-band records that the kernel dropped.
    pub(crate) records: u64,
    /// Processes that were gone before their maps could be read.
    pub(crate) gone: u64,
    /// Exited processes and old address spaces that were forgotten and asked for, and mappings that were forgotten or not taken in, to
    /// bound memory.
    pub(crate) forgotten: u64,
}

/// Address spaces of every process seen.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    pub(super) stream: Option<Stream>,
    pub(super) known: HashMap<u32, Process>,
    pub(super) exited: VecDeque<Exited>,
    pub(super) exited_mappings: usize,
    /// Spaces that ended and may still be there.
    pub(super) ended: usize,
    /// Mappings in all tables.
    pub(super) held: Held,
    pub(super) forgotten: Forgotten,
    pub(super) paths: Paths,
    pub(super) spaces: u32,
    pub(super) losses: MappingLosses,
    /// Processes whose present mappings are others than when it was last asked.
    pub(super) changed: HashSet<u32>,
}

impl Processes {
    /// Opens the stream first, so that nothing happens unseen between a snapshot and it.
    pub(crate) fn new() -> Self {
        let (stream, reason) = match Stream::open() {
            Ok(stream) => (Some(stream), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            stream,
            losses: MappingLosses {
                stream: reason,
                ..MappingLosses::default()
            },
            ..Self::default()
        }
    }

    pub(crate) fn losses(&self) -> MappingLosses {
        let records = self.stream.as_ref().map_or(0, |s| s.lost);
        MappingLosses {
            records,
            forgotten: self.losses.forgotten + self.paths.refused,
            ..self.losses.clone()
        }
    }

    /// Remembers what a process has mapped, unless that is known already.
    pub(crate) fn snapshot(&mut self, tgid: u32) {
        let latest = self.known.get(&tgid).and_then(Process::latest);
        if latest.is_some_and(|s| s.complete) {
            return;
        }
        // The reading is newer than every event up to now; what happens meanwhile need not be in it.
        let read_ns = monotonic_ns();
        self.apply_until(read_ns);
        // Kernel threads have none, and who is gone by now has no stack that starts later.
        let mappings = maps::read(tgid).unwrap_or_default();
        if !mappings.is_empty() {
            self.learn(tgid, mappings, read_ns);
        }
    }

    /// Applies the events that happened so far.
    pub(crate) fn poll(&mut self) {
        self.apply_until(0);
    }

    /// Processes whose mappings changed since the last call.
    pub(crate) fn take_changed(&mut self) -> HashSet<u32> {
        std::mem::take(&mut self.changed)
    }

    /// What a process has mapped of files now, by address, at most so many; `None` when nothing is known of it.
    pub(crate) fn current(&mut self, tgid: u32, most: usize) -> Option<Vec<Mapping>> {
        self.snapshot(tgid);
        self.apply_until(monotonic_ns());
        let space = self.known.get(&tgid)?.latest()?;
        let is_code = |mapping: &&Mapping| mapping.backing != Backing::Anonymous;
        Some(
            space
                .table
                .current()
                .filter(is_code)
                .take(most)
                .cloned()
                .collect(),
        )
    }

    /// Makes sure that the tables are as good as they get for a sample of `tgid` taken at `time_ns`.
    pub(crate) fn prepare(&mut self, tgid: u32, time_ns: u64) {
        match &self.stream {
            Some(stream) if stream.taken_ns < time_ns => self.apply_until(time_ns),
            Some(_) => {}
            // Without events the file is all there is.
            None => self.reread(tgid),
        }
        let latest = self.known.get(&tgid).and_then(Process::latest);
        if latest.is_some_and(|s| s.complete || s.read_ns != 0) {
            return self.ask(tgid, time_ns);
        }
        let read_ns = monotonic_ns();
        self.apply_until(read_ns);
        let mappings = maps::read_any_thread(tgid);
        self.losses.gone += u64::from(mappings.is_err());
        let mappings = mappings.unwrap_or_default();
        if mappings.is_empty() {
            self.ask(tgid, time_ns);
        }
        self.learn(tgid, mappings, read_ns);
    }

    /// Counts a loss where it was forgotten what a process had mapped then.
    pub(super) fn ask(&mut self, tgid: u32, time_ns: u64) {
        let process = self.known.get(&tgid);
        if process.and_then(|process| process.at(time_ns)).is_none() {
            self.losses.forgotten += self.forgotten.asked(tgid);
        }
    }

    /// What covered `address` at `time_ns`, and the ID of the address space.
    pub(crate) fn find(&self, tgid: u32, time_ns: u64, address: u64) -> Option<(u32, &Mapping)> {
        let space = self.known.get(&tgid)?.at(time_ns)?;
        Some((space.id, space.find(address, time_ns)?))
    }

    /// Whether a process still has this address space, as far as the stream has told.
    pub(crate) fn has(&self, tgid: u32, space: u32) -> bool {
        let process = self.known.get(&tgid);
        process
            .filter(|process| process.exited_ns.is_none())
            .and_then(Process::latest)
            .is_some_and(|latest| latest.id == space)
    }

    /// The file mapped as code nearest below `address` at `time_ns`; also in a process that is gone.
    pub(crate) fn code_below(&self, tgid: u32, time_ns: u64, address: u64) -> Option<&Mapping> {
        self.known.get(&tgid)?.at(time_ns)?.below(address, time_ns)
    }

    /// Whether what /proc shows of a process now is what it was at `time_ns`, as far as the stream has told.
    pub(crate) fn lives_on(&self, tgid: u32, time_ns: u64) -> bool {
        self.known.get(&tgid).is_none_or(|process| {
            let id = |space: &Space| space.id;
            process.exited_ns.is_none() && process.at(time_ns).map(id) == process.latest().map(id)
        })
    }

    /// Reads the maps file of a known process again, at most every 100 ms: the stream does not tell of mremap, nor of what
    /// was lost.
    pub(crate) fn reread(&mut self, tgid: u32) {
        let now = monotonic_ns();
        self.apply_until(now);
        let Some(space) = self.known.get_mut(&tgid).and_then(Process::latest_mut) else {
            return;
        };
        if now < space.read_ns.saturating_add(REREAD_NS) {
            return;
        }
        let since_ns = std::mem::replace(&mut space.read_ns, now);
        let Ok(mut mappings) = maps::read(tgid) else {
            return;
        };
        share(&mut self.paths, &mut mappings);
        self.make_room(mappings.len());
        let space = self.known.get_mut(&tgid).and_then(Process::latest_mut);
        if let Some(space) = space {
            let (table, given_up) = space.table_mut(&self.held);
            self.losses.forgotten += given_up + table.merge(mappings, since_ns);
        }
        self.changed.insert(tgid);
    }

    /// Takes in the first reading of a process' maps file, which began at `read_ns`; an empty one is all that will be known.
    pub(super) fn learn(&mut self, tgid: u32, mut mappings: Vec<Mapping>, read_ns: u64) {
        share(&mut self.paths, &mut mappings);
        self.make_room(mappings.len());
        let table = self.no_mappings();
        let process = self.known.entry(tgid).or_default();
        if process.latest().is_none() {
            self.spaces += 1;
            process.push(Space::new(self.spaces, 0, false, table));
        }
        let space = process.latest_mut().expect("just pushed");
        space.read_ns = read_ns;
        space.complete = !mappings.is_empty();
        let (table, given_up) = space.table_mut(&self.held);
        self.losses.forgotten += given_up + table.merge(mappings, 0);
        self.changed.insert(tgid);
    }

    /// A table without mappings.
    pub(super) fn no_mappings(&self) -> Arc<Table> {
        Arc::new(Table::new(&self.held))
    }

    /// Forgets the spaces that ended first until so many more mappings may be held; where that is not enough, tables refuse
    /// what is new.
    pub(super) fn make_room(&mut self, wanted: usize) {
        let is_worth_it = self.ended > 0 && self.ended * LOOKED_AT >= self.known.len();
        if self.held.room() >= wanted || !is_worth_it {
            return;
        }
        let known = self.known.iter();
        let mut ended: Vec<(u64, u32)> = known
            .flat_map(|(&tgid, process)| process.ended_ns().map(move |ended_ns| (ended_ns, tgid)))
            .collect();
        ended.sort_unstable();
        self.ended = ended.len();
        for (_, tgid) in ended {
            if self.held.room() >= wanted.max(self.held.reserve()) {
                break;
            }
            self.ended -= 1;
            self.losses.forgotten += self.forgotten.add(tgid);
            let process = self.known.get_mut(&tgid);
            if process.is_some_and(|process| !process.forget_oldest()) {
                self.known.remove(&tgid);
            }
        }
    }

    fn apply_until(&mut self, until_ns: u64) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        for record in stream.take(monotonic_ns(), until_ns) {
            self.apply(record);
        }
    }
}

fn share(paths: &mut Paths, mappings: &mut [Mapping]) {
    for mapping in mappings {
        mapping.path = paths.share(Arc::clone(&mapping.path));
    }
}
