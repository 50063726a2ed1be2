//! Stacks of threads that do not run: they are walked from outside, and come beside the ring.

use foreign::pages::Kept;

use crate::record::PythonStack;
use crate::unwind::Registers;
use crate::{KernelStack, StackTable};

/// Stacks that are taken in beside the ring, as many as the BPF side sends through it.
const OUTSIDE_STACKS: usize = 65_536;

/// Threads whose memory is read in one go: three blocks each are one question.
const READ_AHEAD: usize = 5;

impl StackTable {
    /// Adds the user stack of a thread that is blocked in the kernel; returns its id, 0 when there is no room for it.
    pub fn insert_blocked(&mut self, tgid: u32, time_ns: u64, registers: Registers) -> u64 {
        self.insert_inside(tgid, time_ns, registers, 0).0
    }

    /// The same of many threads, which have not run since before: their memory is read once for all of them.
    pub fn insert_all_blocked(&mut self, time_ns: u64, threads: &[(u32, Registers)]) -> Vec<u64> {
        let memory = Kept::default();
        let mut ids = Vec::with_capacity(threads.len());
        for threads in threads.chunk_by(|one, other| one.0 == other.0) {
            for threads in threads.chunks(READ_AHEAD) {
                memory.fetch(
                    threads[0].0,
                    threads
                        .iter()
                        .flat_map(|(_, registers)| registers.first_read()),
                );
                let walks = threads.iter().map(|(tgid, registers)| {
                    self.walk_and_insert((*tgid, time_ns), *registers, 0, &memory)
                });
                ids.extend(walks.map(|(id, _)| id));
            }
        }
        ids
    }

    /// The same of one, and how many frames, from the leaf on, lie inside of a place on the same stack, by the stack pointer that the
    /// thread had there; 0: none is asked about.
    pub fn insert_inside(
        &mut self,
        tgid: u32,
        time_ns: u64,
        registers: Registers,
        outer_sp: u64,
    ) -> (u64, usize) {
        let memory = Kept::default();
        memory.fetch(tgid, registers.first_read());
        self.walk_and_insert((tgid, time_ns), registers, outer_sp, &memory)
    }

    fn walk_and_insert(
        &mut self,
        (tgid, time_ns): (u32, u64),
        registers: Registers,
        outer_sp: u64,
        memory: &Kept,
    ) -> (u64, usize) {
        let mut own = self.unwinder.borrow_mut();
        own.follow(tgid, &mut self.symbolizer);
        drop(own);
        let walker = self.lender.as_ref().unwrap_or(&self.unwinder).borrow();
        let walk = walker.walk(tgid, registers, outer_sp, memory);
        let pythons = &walker.pythons;
        let python = pythons.walk(tgid, registers.thread_pointer, memory);
        drop(walker);
        let id = self.outside_id((&walk.addresses, &python), tgid);
        // A pool's threads wait in one place, by the thousand.
        if self.user.contains_key(&id) {
            return (id, walk.inside);
        }
        if !self.has_room_outside() {
            return (0, 0);
        }
        let stack = self.user_stack((tgid, time_ns), &walk.addresses, walk.end, python.as_ref());
        self.user.insert(id, stack);
        (id, walk.inside)
    }

    /// Adds a kernel stack that came by another way than the ring; returns its id, 0 when there is no room for it.
    pub fn insert_kernel(&mut self, addresses: &[u64]) -> u64 {
        let id = self.outside_id((addresses, &None), 0);
        if self.kernel.contains_key(&id) {
            return id;
        }
        if !self.has_room_outside() {
            return 0;
        }
        let stack = KernelStack {
            addresses: addresses.into(),
            names: None,
        };
        self.kernel.insert(id, stack);
        id
    }

    /// True if one more stack may come beside the ring; counted if not. A process may make as many as it likes.
    fn has_room_outside(&mut self) -> bool {
        let has_room = self.outside < OUTSIDE_STACKS;
        if has_room {
            self.outside += 1;
        } else {
            self.outside_full += 1;
        }
        has_room
    }

    /// Ids made here only have to differ from each other and, in all likelihood, from the BPF side's; 0 and [`LEFT_OUT`] are taken.
    fn outside_id(&self, content: (&[u64], &Option<PythonStack>), tgid: u32) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (content, tgid, "outside").hash(&mut hasher);
        hasher.finish() | 2
    }
}
