//! The executable mappings of one address space over time.

use std::collections::{BTreeMap, VecDeque};

use super::Mapping;
use super::held::Held;

/// vm.max_map_count is 65530 by default.
const MAX_CURRENT: usize = 65_536;
/// Replaced mappings are searched one by one, and only when no current one answers.
const MAX_REPLACED: usize = 1024;

/// Current mappings by start address, never overlapping, and those that they replaced.
#[derive(Debug, Default)]
pub(super) struct Table {
    current: BTreeMap<u64, Mapping>,
    replaced: VecDeque<Mapping>,
    held: Held,
}

impl Clone for Table {
    fn clone(&self) -> Self {
        self.held.changed(0, self.len());
        Self {
            current: self.current.clone(),
            replaced: self.replaced.clone(),
            held: self.held.clone(),
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.held.changed(self.len(), 0);
    }
}

impl Table {
    /// One that counts where all tables are counted.
    pub(super) fn new(held: &Held) -> Self {
        Self {
            current: BTreeMap::new(),
            replaced: VecDeque::new(),
            held: held.clone(),
        }
    }

    /// A mapping made at `mapping.from_ns` takes the place of all that it overlaps. Returns how many were forgotten.
    pub(super) fn insert(&mut self, mapping: Mapping) -> u64 {
        let before = self.len();
        let dropped = self.replace(mapping);
        self.held.changed(before, self.len());
        dropped
    }

    fn replace(&mut self, mapping: Mapping) -> u64 {
        let overlapping: Vec<u64> = self.overlapping(&mapping).map(|m| m.start).collect();
        if let [start] = overlapping[..] {
            let same = &self.current[&start];
            if same.start == mapping.start && same.end == mapping.end && same.same_content(&mapping)
            {
                return 0;
            }
        }
        // Where nothing more may be held, what is replaced gives its place and its past: a wrong name is worse than none.
        let most = match self.held.room() {
            0 => self.current.len().min(MAX_CURRENT),
            _ => MAX_CURRENT,
        };
        let mut dropped = 0;
        let mut outside = Vec::new();
        for start in overlapping {
            let old = self.current.remove(&start).expect("key was just listed");
            outside.extend(outside_of(&old, &mapping).into_iter().flatten());
            dropped += self.retire(old, mapping.from_ns);
        }
        for part in std::iter::once(mapping).chain(outside) {
            if self.current.len() < most {
                self.current.insert(part.start, part);
            } else {
                dropped += 1;
            }
        }
        dropped
    }

    /// Adds what `/proc/PID/maps` shows now and the table does not; `since_ns` is the last time the two agreed.
    pub(super) fn merge(&mut self, mappings: Vec<Mapping>, since_ns: u64) -> u64 {
        let mut dropped = 0;
        for mut mapping in mappings {
            if self.overlapping(&mapping).next().is_some() {
                mapping.from_ns = since_ns;
            }
            dropped += self.insert(mapping);
        }
        dropped
    }

    /// A mapping that was made before `/proc/PID/maps` was read: what the file showed is newer.
    pub(super) fn insert_older(&mut self, mapping: Mapping, read_ns: u64) -> u64 {
        let still_there = self
            .overlapping(&mapping)
            .any(|m| m.covers(mapping.start) && m.same_content(&mapping));
        if still_there {
            return 0;
        }
        let before = self.len();
        let dropped = self.retire(mapping, read_ns);
        self.held.changed(before, self.len());
        dropped
    }

    /// What is mapped now, by address.
    pub(super) fn current(&self) -> impl Iterator<Item = &Mapping> {
        self.current.values()
    }

    /// Mappings held, for bounds on memory.
    pub(super) fn len(&self) -> usize {
        self.current.len() + self.replaced.len()
    }

    /// What covered `address` at `time_ns`.
    pub(super) fn find(&self, address: u64, time_ns: u64) -> Option<&Mapping> {
        let current = self.current.range(..=address).next_back().map(|(_, m)| m);
        current
            .filter(|m| m.covers(address) && m.from_ns <= time_ns)
            .or_else(|| {
                self.replaced
                    .iter()
                    .rev()
                    .find(|m| m.covers(address) && m.from_ns <= time_ns && time_ns < m.until_ns)
            })
    }

    /// What is mapped now, and was at `time_ns`, below an address: the nearest first.
    pub(super) fn below(&self, address: u64, time_ns: u64) -> impl Iterator<Item = &Mapping> {
        let below = self.current.range(..=address).rev().map(|(_, m)| m);
        below.filter(move |m| m.from_ns <= time_ns)
    }

    fn overlapping<'a>(&'a self, mapping: &Mapping) -> impl Iterator<Item = &'a Mapping> + use<'a> {
        let (start, end) = (mapping.start, mapping.end);
        let before = self.current.range(..start).next_back().map(|(_, m)| m);
        let inside = self.current.range(start..end).map(|(_, m)| m);
        before.filter(|m| m.end > start).into_iter().chain(inside)
    }

    fn retire(&mut self, mut mapping: Mapping, until_ns: u64) -> u64 {
        mapping.until_ns = until_ns;
        if self.held.room() == 0 {
            return 1;
        }
        self.replaced.push_back(mapping);
        if self.replaced.len() > MAX_REPLACED {
            self.replaced.pop_front();
            return 1;
        }
        0
    }
}

/// The parts of `old` that `new` leaves in place.
fn outside_of(old: &Mapping, new: &Mapping) -> [Option<Mapping>; 2] {
    let below = (old.start < new.start).then(|| Mapping {
        end: new.start,
        ..old.clone()
    });
    let above = (old.end > new.end).then(|| Mapping {
        start: new.end,
        offset: old.file_offset(new.end),
        ..old.clone()
    });
    [below, above]
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, FileKey};
    use super::*;

    fn mapping(start: u64, end: u64, inode: u64, from_ns: u64) -> Mapping {
        Mapping {
            start,
            end,
            offset: 0,
            backing: Backing::File(FileKey {
                major: 0,
                minor: 1,
                inode,
            }),
            path: (*b"/lib/x").into(),
            from_ns,
            until_ns: u64::MAX,
        }
    }

    fn inode(table: &Table, address: u64, time_ns: u64) -> Option<u64> {
        table.find(address, time_ns).map(|m| match m.backing {
            Backing::File(key) => key.inode,
            _ => 0,
        })
    }

    #[test]
    fn a_newer_mapping_replaces_an_older_one_from_its_time_on() {
        let mut table = Table::default();
        table.insert(mapping(0x1000, 0x5000, 1, 0));
        table.insert(mapping(0x2000, 0x3000, 2, 100));
        assert_eq!(inode(&table, 0x2000, 99), Some(1));
        assert_eq!(inode(&table, 0x2000, 100), Some(2));
        assert_eq!(inode(&table, 0x1fff, 100), Some(1));
        assert_eq!(inode(&table, 0x3000, 100), Some(1));
        assert_eq!(table.find(0x3000, 100).unwrap().file_offset(0x3000), 0x2000);
        assert_eq!(inode(&table, 0x5000, 100), None);
        assert_eq!(inode(&table, 0xfff, 100), None);
    }

    #[test]
    fn nothing_is_found_before_it_was_mapped() {
        let mut table = Table::default();
        table.insert(mapping(0x1000, 0x2000, 1, 50));
        assert_eq!(inode(&table, 0x1000, 49), None);
        assert_eq!(inode(&table, 0x1000, 50), Some(1));
    }

    #[test]
    fn a_record_older_than_the_maps_file_only_adds_history() {
        let mut table = Table::default();
        table.merge(vec![mapping(0x1000, 0x2000, 2, 0)], 0);
        table.insert_older(mapping(0x1000, 0x2000, 2, 10), 100);
        table.insert_older(mapping(0x8000, 0x9000, 3, 20), 100);
        assert_eq!(inode(&table, 0x1000, 200), Some(2));
        assert_eq!(inode(&table, 0x8000, 50), Some(3));
        assert_eq!(
            inode(&table, 0x8000, 200),
            None,
            "unmapped before the file was read"
        );
    }

    #[test]
    fn a_full_table_gives_up_what_is_replaced_and_grows_no_more() {
        let held = Held::new(3);
        let mut table = Table::new(&held);
        for (at, inode) in [(0x1000, 1), (0x4000, 2), (0x9000, 3)] {
            assert_eq!(table.insert(mapping(at, at + 0x3000, inode, 0)), 0);
        }
        assert_eq!(table.insert(mapping(0x5000, 0x6000, 4, 10)), 3);
        assert_eq!(inode(&table, 0x5000, 10), Some(4), "not the one below");
        assert_eq!(
            inode(&table, 0x4000, 10),
            None,
            "no room for what is left of it"
        );
        assert_eq!(table.insert(mapping(0x20000, 0x21000, 5, 20)), 1);
        assert_eq!((held.count(), table.len()), (3, 3));
        let copy = table.clone();
        assert_eq!(held.count(), 6);
        drop((table, copy));
        assert_eq!(held.count(), 0);
    }

    #[test]
    fn pieces_of_a_mapping_are_bounded_like_mappings() {
        let mut table = Table::default();
        table.insert(mapping(0, 1 << 40, 1, 0));
        let pages = (1..=MAX_CURRENT as u64).map(|page| page * 0x2000);
        let pieces = pages.map(|start| table.insert(mapping(start, start + 0x1000, 2, 1)));
        assert!(pieces.sum::<u64>() > 0);
        assert_eq!(table.current.len(), MAX_CURRENT);
    }

    #[test]
    fn history_is_bounded_and_says_so() {
        let mut table = Table::default();
        let dropped: u64 = (0..5000)
            .map(|i| table.insert(mapping(0x1000, 0x2000, i, i)))
            .sum();
        assert_eq!(dropped, 5000 - 1 - 1024);
        assert_eq!(inode(&table, 0x1000, 4998), Some(4998));
    }
}
