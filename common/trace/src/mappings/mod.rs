//! Which file a process had mapped where, and when.
//!
//! Two sources: `/proc/PID/maps` when a process is first met, and the kernel's side-band stream of every exec, fork and
//! executable mmap, so that processes that have long exited when their stacks are looked at are known too.

mod proc_maps;
mod sideband;
mod table;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sideband::{Change, Sideband};
use table::Table;

/// Exited processes remembered; stacks of older ones stay unnamed.
const MAX_EXITED: usize = 8192;

/// What lies behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File {
        /// Its path as the process saw it, without ` (deleted)`.
        path: Arc<[u8]>,
        /// Its inode number.
        inode: u64,
    },
    /// The kernel's virtual shared object.
    Vdso,
    /// No file: code made at run time.
    Anonymous,
}

impl Kind {
    /// From a path as `/proc/PID/maps` and the side-band stream give it.
    fn of(path: &[u8], inode: u64) -> Self {
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        match path {
            b"[vdso]" => Self::Vdso,
            _ if inode == 0 || !path.starts_with(b"/") => Self::Anonymous,
            _ => Self::File {
                path: unescape(path).into(),
                inode,
            },
        }
    }
}

/// `/proc` writes newlines in paths as `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'\\' && tail.starts_with(b"012") {
            plain.push(b'\n');
            rest = &tail[3..];
        } else {
            plain.push(byte);
        }
    }
    plain
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file of `start`.
    pub file_offset: u64,
    /// When it was made (`CLOCK_MONOTONIC`, ns); 0: before anybody looked.
    pub since_ns: u64,
    /// What is mapped.
    pub kind: Kind,
}

/// The executable mappings of every process met.
pub struct Mappings {
    sideband: Option<Sideband>,
    processes: HashMap<u32, Arc<Table>>,
    exited: VecDeque<u32>,
    unreadable: u64,
    forgotten: u64,
}

impl Default for Mappings {
    fn default() -> Self {
        Self::new()
    }
}

impl Mappings {
    /// Opens the side-band stream; without it only live processes are known, which [`Self::has_stream`] tells.
    pub fn new() -> Self {
        Self {
            sideband: Sideband::open().ok(),
            processes: HashMap::new(),
            exited: VecDeque::new(),
            unreadable: 0,
            forgotten: 0,
        }
    }

    /// Whether changes of mappings are followed.
    pub fn has_stream(&self) -> bool {
        self.sideband.is_some()
    }

    /// Reads what these processes have mapped now.
    pub fn snapshot(&mut self, tgids: impl IntoIterator<Item = u32>) {
        for tgid in tgids {
            self.read(tgid);
        }
    }

    /// Takes in what has changed since the last call.
    pub fn poll(&mut self) {
        let Some(sideband) = &mut self.sideband else {
            return;
        };
        for change in sideband.take() {
            self.apply(change);
        }
    }

    /// What covered `address` in process `tgid` at `time_ns`.
    pub fn find(&mut self, tgid: u32, time_ns: u64, address: u64) -> Option<&Mapping> {
        if !self
            .processes
            .get(&tgid)
            .is_some_and(|table| table.complete)
        {
            self.read(tgid);
        }
        let known = self.processes.get(&tgid)?.find(time_ns, address).is_some();
        if !known && self.sideband.is_none() {
            // Without the stream a new library shows up as a hole.
            self.read(tgid);
        }
        self.processes.get(&tgid)?.find(time_ns, address)
    }

    /// Changes that the stream dropped.
    pub fn changes_lost(&self) -> u64 {
        self.sideband.as_ref().map_or(0, Sideband::lost)
    }

    /// Processes that were gone before their mappings could be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Exited processes that had to make room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn read(&mut self, tgid: u32) {
        match proc_maps::read(tgid) {
            // Kernel threads have none.
            Some(mappings) => {
                self.processes.insert(tgid, Arc::new(Table::new(mappings)));
            }
            None => {
                self.unreadable += 1;
                // What single changes told is all there will ever be.
                Arc::make_mut(self.processes.entry(tgid).or_default()).complete = true;
            }
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Map { tgid, mapping } => {
                Arc::make_mut(self.processes.entry(tgid).or_default()).insert(mapping);
            }
            Change::Exec { tgid } => {
                self.processes
                    .insert(tgid, Arc::new(Table::new(Vec::new())));
            }
            Change::Fork { parent, child } => match self.processes.get(&parent) {
                Some(table) => {
                    let table = Arc::clone(table);
                    self.processes.insert(child, table);
                }
                // An ID that is used again must not keep its predecessor's mappings.
                None => drop(self.processes.remove(&child)),
            },
            Change::Exit { tgid } => {
                self.exited.push_back(tgid);
                if self.exited.len() > MAX_EXITED
                    && let Some(oldest) = self.exited.pop_front()
                    && !std::path::Path::new(&format!("/proc/{oldest}")).exists()
                    && self.processes.remove(&oldest).is_some()
                {
                    self.forgotten += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::window::monotonic_ns;

    /// A process that is gone before anybody looks: only the stream can know its mappings.
    #[test]
    fn a_short_life_is_remembered() {
        let mut mappings = Mappings::new();
        if !mappings.has_stream() {
            assert!(
                std::env::var_os("REQUIRE_LIVE").is_none(),
                "perf_event_open is refused"
            );
            eprintln!("SKIPPED: needs root");
            return;
        }
        let mut child = Command::new("/bin/cat")
            .arg("/proc/self/maps")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let tgid = child.id();
        let mut own = Vec::new();
        std::io::Read::read_to_end(child.stdout.as_mut().unwrap(), &mut own).unwrap();
        child.wait().unwrap();
        mappings.poll();
        for expected in proc_maps::parse(&own)
            .iter()
            .filter(|mapping| matches!(mapping.kind, Kind::File { .. }))
        {
            let found = mappings
                .find(tgid, monotonic_ns(), expected.start + 1)
                .unwrap()
                .clone();
            assert_eq!(
                (found.start, found.file_offset, &found.kind),
                (expected.start, expected.file_offset, &expected.kind)
            );
        }
        assert_eq!(
            mappings.unreadable(),
            0,
            "nothing had to be asked after the fact"
        );
    }

    #[test]
    fn newlines_in_paths_come_back() {
        assert_eq!(unescape(b"/tmp/a\\012b\\0"), b"/tmp/a\nb\\0");
    }
}
