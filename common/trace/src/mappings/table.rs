//! One process's executable mappings, with what they replaced.

use super::Mapping;

/// Replaced mappings remembered per process: enough for a library that is loaded and unloaded again and again.
const MAX_REPLACED: usize = 64;

/// Mappings by start address, and older ones that stacks taken earlier may still point into.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    current: Vec<Mapping>,
    /// With the time at which each was replaced, oldest first.
    replaced: Vec<(u64, Mapping)>,
    /// Whether everything mapped is in here; a table made from single changes has gaps.
    pub(super) complete: bool,
}

impl Table {
    pub(super) fn new(mappings: Vec<Mapping>) -> Self {
        let mut table = Self {
            complete: true,
            ..Self::default()
        };
        for mapping in mappings {
            table.insert(mapping);
        }
        table
    }

    /// Adds a mapping in place of whatever it overlaps.
    pub(super) fn insert(&mut self, mapping: Mapping) {
        let (start, end) = (mapping.start, mapping.end);
        let first = self.current.partition_point(|other| other.end <= start);
        let last = first + self.current[first..].partition_point(|other| other.start < end);
        let mut kept = Vec::new();
        for old in &self.current[first..last] {
            if old.start < start {
                kept.push(Mapping {
                    end: start,
                    ..old.clone()
                });
            }
        }
        kept.push(mapping.clone());
        for old in &self.current[first..last] {
            if old.end > end {
                let file_offset = old.file_offset + (end - old.start);
                kept.push(Mapping {
                    start: end,
                    file_offset,
                    ..old.clone()
                });
            }
        }
        let gone: Vec<Mapping> = self.current.splice(first..last, kept).collect();
        self.replaced
            .extend(gone.into_iter().map(|old| (mapping.since_ns, old)));
        let surplus = self.replaced.len().saturating_sub(MAX_REPLACED);
        self.replaced.drain(..surplus);
    }

    /// What covered `address` at `time_ns`.
    pub(super) fn find(&self, time_ns: u64, address: u64) -> Option<&Mapping> {
        let after = self
            .current
            .partition_point(|mapping| mapping.end <= address);
        let now = self
            .current
            .get(after)
            .filter(|mapping| mapping.start <= address);
        if now.is_some_and(|mapping| mapping.since_ns <= time_ns) {
            return now;
        }
        let then = self.replaced.iter().find(|(until_ns, old)| {
            time_ns < *until_ns
                && old.since_ns <= time_ns
                && old.start <= address
                && address < old.end
        });
        // A mapping made moments later is a better guess than none: clocks of two CPUs may differ a little.
        then.map(|(_, old)| old).or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Kind;

    fn file(start: u64, end: u64, inode: u64, since_ns: u64) -> Mapping {
        let kind = Kind::File {
            path: b"/x".as_slice().into(),
            inode,
        };
        Mapping {
            start,
            end,
            file_offset: 0,
            since_ns,
            kind,
        }
    }

    fn inode(table: &Table, time_ns: u64, address: u64) -> Option<u64> {
        table
            .find(time_ns, address)
            .map(|mapping| match mapping.kind {
                Kind::File { inode, .. } => inode,
                _ => 0,
            })
    }

    #[test]
    fn a_new_mapping_takes_the_middle_of_an_old_one() {
        let mut table = Table::new(vec![file(0x1000, 0x5000, 1, 0)]);
        table.insert(file(0x2000, 0x3000, 2, 100));
        assert_eq!(inode(&table, 200, 0x1fff), Some(1));
        assert_eq!(inode(&table, 200, 0x2000), Some(2));
        assert_eq!(inode(&table, 200, 0x3000), Some(1));
        assert_eq!(table.find(200, 0x3000).unwrap().file_offset, 0x2000);
        assert_eq!(inode(&table, 200, 0x5000), None);
        assert_eq!(inode(&table, 50, 0x2000), Some(1), "before it was replaced");
    }

    #[test]
    fn history_is_bounded() {
        let mut table = Table::default();
        for time in 1..1000 {
            table.insert(file(0x1000, 0x2000, time, time));
        }
        assert_eq!(table.replaced.len(), MAX_REPLACED);
        assert_eq!(inode(&table, 990, 0x1800), Some(990));
    }
}
