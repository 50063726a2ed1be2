//! Applies what the kernel reports about address spaces, in the order of its happening.

use std::sync::Arc;

use super::Mapping;
use super::process::{Exited, MAX_COPIED, Space};
use super::processes::Processes;
use super::record::{Event, Record};
use super::table::Table;

/// Exited processes whose stacks may still be on their way; about 2 KiB each.
const MAX_EXITED: usize = 8192;
/// Their mappings together, about 100 bytes each.
const MAX_EXITED_MAPPINGS: usize = 1 << 20;

impl Processes {
    pub(super) fn apply(&mut self, Record { time_ns, event }: Record) {
        match event {
            Event::Map { tgid, mapping } => self.map(tgid, mapping),
            Event::Exec { tgid } => self.begin(tgid, time_ns, true, self.no_mappings()),
            Event::Fork { child, parent } => self.fork(child, parent, time_ns),
            Event::Exit { tgid } => self.exit(tgid, time_ns),
            Event::Lost(_) => {}
        }
    }

    fn map(&mut self, tgid: u32, mut mapping: Mapping) {
        mapping.path = self.paths.share(mapping.path);
        self.make_room(MAX_COPIED);
        let held = &self.held;
        let process = self.known.entry(tgid).or_default();
        if process.latest().is_none() {
            self.spaces += 1;
            let table = Arc::new(Table::new(held));
            process.push(Space::new(self.spaces, 0, false, table));
        }
        if let Some(space) = process.at_mut(mapping.from_ns) {
            self.losses.forgotten += space.map(mapping, held);
            self.changed.insert(tgid);
        }
    }

    /// An address space begins at `time_ns`.
    fn begin(&mut self, tgid: u32, time_ns: u64, complete: bool, table: Arc<Table>) {
        self.spaces += 1;
        self.changed.insert(tgid);
        let process = self.known.entry(tgid).or_default();
        process.exited_ns = None;
        match process.latest_mut() {
            // The maps file was read after this: it shows the new space already.
            Some(space) if space.read_ns > time_ns => space.from_ns = time_ns.max(space.from_ns),
            latest => {
                self.ended += usize::from(latest.is_some());
                process.push(Space::new(self.spaces, time_ns, complete, table));
            }
        }
    }

    fn fork(&mut self, child: u32, parent: u32, time_ns: u64) {
        let parent = self.known.get(&parent).and_then(|p| p.at(time_ns));
        match parent.filter(|s| s.complete).map(|s| Arc::clone(&s.table)) {
            Some(table) => self.begin(child, time_ns, true, table),
            // An older process of that number must not answer for it.
            None if self.known.contains_key(&child) => {
                self.begin(child, time_ns, false, self.no_mappings());
            }
            None => {}
        }
    }

    fn exit(&mut self, tgid: u32, time_ns: u64) {
        let Some(process) = self.known.get_mut(&tgid) else {
            return;
        };
        process.exited_ns = Some(time_ns);
        self.changed.insert(tgid);
        self.ended += 1;
        let mappings = process.weight();
        self.exited_mappings += mappings;
        self.exited.push_back(Exited {
            tgid,
            time_ns,
            mappings,
        });
        while self.exited.len() > MAX_EXITED || self.exited_mappings > MAX_EXITED_MAPPINGS {
            let Some(oldest) = self.exited.pop_front() else {
                return;
            };
            self.exited_mappings -= oldest.mappings;
            let process = self.known.get(&oldest.tgid);
            if process.is_some_and(|p| p.exited_ns == Some(oldest.time_ns)) {
                self.known.remove(&oldest.tgid);
                self.losses.forgotten += self.forgotten.add(oldest.tgid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::held::Held;
    use super::super::{Backing, FileKey};
    use super::*;

    impl Processes {
        fn sees(&mut self, time_ns: u64, event: Event) {
            self.apply(Record { time_ns, event });
        }

        fn sees_exec(&mut self, time_ns: u64, tgid: u32) {
            self.sees(time_ns, Event::Exec { tgid });
        }

        fn sees_fork(&mut self, time_ns: u64, parent: u32, child: u32) {
            self.sees(time_ns, Event::Fork { child, parent });
        }

        fn sees_exit(&mut self, time_ns: u64, tgid: u32) {
            self.sees(time_ns, Event::Exit { tgid });
        }

        fn sees_map(&mut self, time_ns: u64, tgid: u32, start: u64, inode: u64) {
            let key = FileKey {
                major: 8,
                minor: 0,
                inode,
            };
            let mapping = Mapping {
                start,
                end: start + 0x1000,
                offset: 0,
                backing: Backing::File(key),
                path: (*b"/bin/x").into(),
                from_ns: time_ns,
                until_ns: u64::MAX,
            };
            self.sees(time_ns, Event::Map { tgid, mapping });
        }

        fn inode(&self, tgid: u32, time_ns: u64, address: u64) -> Option<u64> {
            match self.find(tgid, time_ns, address)?.1.backing {
                Backing::File(key) => Some(key.inode),
                _ => None,
            }
        }
    }

    /// Process 5 has a file since 11.
    fn one_program() -> Processes {
        let mut all = Processes::default();
        all.sees_exec(10, 5);
        all.sees_map(11, 5, 0x1000, 1);
        all
    }

    #[test]
    fn exec_starts_afresh_and_keeps_the_past() {
        let mut all = one_program();
        all.sees_exec(20, 5);
        all.sees_map(21, 5, 0x1000, 2);
        assert_eq!(all.inode(5, 15, 0x1000), Some(1));
        assert_eq!(all.inode(5, 20, 0x1000), None);
        assert_eq!(all.inode(5, 21, 0x1000), Some(2));
    }

    #[test]
    fn mappings_made_while_the_file_is_read_stay() {
        let mut all = Processes::default();
        all.sees_exec(10, 5);
        // The reading began at 20, and what it found was there before 30.
        all.learn(5, Vec::new(), 20);
        all.sees_map(30, 5, 0x1000, 1);
        assert_eq!(all.inode(5, u64::MAX, 0x1000), Some(1));
    }

    #[test]
    fn a_child_has_its_parents_mappings_until_it_changes_them() {
        let mut all = one_program();
        all.sees_fork(20, 5, 6);
        all.sees_map(21, 6, 0x8000, 2);
        all.sees_map(22, 5, 0x1000, 3);
        assert_eq!(all.inode(6, 30, 0x1000), Some(1));
        assert_eq!(all.inode(6, 30, 0x8000), Some(2));
        assert_eq!(all.inode(5, 30, 0x8000), None);
        assert_eq!(all.inode(5, 30, 0x1000), Some(3));
    }

    #[test]
    fn a_reused_pid_does_not_inherit_the_dead() {
        let mut all = one_program();
        all.sees_exit(20, 5);
        assert_eq!(all.inode(5, 15, 0x1000), Some(1));
        all.sees_fork(30, 99, 5);
        assert_eq!(all.inode(5, 31, 0x1000), None);
        assert_eq!(all.inode(5, 15, 0x1000), Some(1));
    }

    #[test]
    fn children_that_change_a_large_table_do_not_copy_it() {
        let mut all = Processes::default();
        all.sees_exec(10, 1);
        for i in 0..65_536 {
            all.sees_map(11, 1, i * 0x2000, 1);
        }
        let shared = all.held.count();
        for child in 2..1002 {
            all.sees_fork(20, 1, child);
            all.sees_map(21, child, 0x2000, 2);
        }
        assert_eq!(all.held.count(), shared + 1000);
        assert_eq!(all.losses.forgotten, 1000);
        assert_eq!(all.inode(2, 30, 0x2000), Some(2));
        assert_eq!(all.inode(2, 30, 0x4000), None, "unknown, not the parent's");
        assert_eq!(all.inode(1, 30, 0x2000), Some(1));
    }

    #[test]
    fn the_oldest_spaces_go_first_and_then_nothing_more_is_taken_in() {
        let mut all = Processes {
            held: Held::new(8 * MAX_COPIED),
            ..Processes::default()
        };
        // One program after another under one number: the last one and seven before it have room.
        for exec in 0..9 {
            all.sees_exec(exec * 10, 5);
            for i in 0..MAX_COPIED as u64 {
                all.sees_map(exec * 10 + 1, 5, i * 0x2000, exec);
            }
            assert!(all.held.count() <= 8 * MAX_COPIED);
        }
        assert_eq!(all.inode(5, 5, 0), None, "the first");
        assert_eq!(all.inode(5, 75, 0), Some(7));
        assert_eq!(all.inode(5, 85, 0), Some(8));
        for (time_ns, forgotten) in [(85, 0), (75, 0), (5, 1), (6, 1)] {
            all.ask(5, time_ns);
            assert_eq!(all.losses.forgotten, forgotten, "{time_ns}");
        }
        for tgid in 10..30 {
            all.sees_exec(100, tgid);
            for i in 0..MAX_COPIED as u64 {
                all.sees_map(101, tgid, i * 0x2000, 1);
            }
            assert!(all.held.count() <= 8 * MAX_COPIED);
        }
        assert_eq!(all.inode(5, 105, 0), Some(8), "what runs is not forgotten");
        assert_eq!(all.inode(10, 105, 0), Some(1));
        assert_eq!(all.inode(29, 105, 0), None);
        assert!(all.losses.forgotten >= 12 * MAX_COPIED as u64);
    }

    #[test]
    fn many_processes_that_share_their_parents_table_fit() {
        let mut all = Processes::default();
        all.sees_exec(10, 1);
        for i in 0..1000 {
            all.sees_map(11, 1, i * 0x2000, 1);
        }
        for child in 2..20_002 {
            all.sees_fork(20, 1, child);
        }
        for child in 2..302 {
            all.sees_map(21, child, 0x2000, 2);
        }
        assert_eq!(all.inode(20_001, 30, 999 * 0x2000), Some(1));
        assert_eq!(all.inode(301, 30, 999 * 0x2000), Some(1));
        assert_eq!(all.inode(301, 30, 0x2000), Some(2));
        assert_eq!(all.losses.forgotten, 0);
    }

    #[test]
    fn exited_processes_are_bounded() {
        let mut all = Processes::default();
        for tgid in 1..=9000 {
            all.sees_exec(u64::from(tgid), tgid);
            all.sees_exit(u64::from(tgid), tgid);
        }
        assert_eq!(all.known.len(), MAX_EXITED);
        // Each that is asked for is a loss, and no other.
        for (tgid, forgotten) in [(9000, 0), (1, 1), (1, 1), (2, 2), (9001, 2)] {
            all.ask(tgid, u64::from(tgid));
            assert_eq!(all.losses.forgotten, forgotten, "{tgid}");
        }
    }
}
