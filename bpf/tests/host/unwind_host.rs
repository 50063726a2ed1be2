//! The unwinder on this machine, and what it is handed: `host/unwind.c`.

use std::ffi::{CString, c_void};
use std::ptr;

use crate::host::Host;
use crate::host::machine::Task;
use crate::memory::{Memory, Reader, read};

pub(crate) const MOST_DEPTH: usize = 127;
/// Words of a record: addresses, one that tells of Python's frames, and two for each of those.
pub(crate) const MOST_WORDS: usize = MOST_DEPTH + 1 + 2 * 128;

/// `struct stack_record`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) time_ns: u64,
    pub(crate) tgid: u32,
    pub(crate) depth: u16,
    pub(crate) kind: u8,
    pub(crate) end: u8,
    pub(crate) words: [u64; MOST_WORDS],
}

impl Record {
    pub(crate) const EMPTY: Self = Self {
        id: 0,
        time_ns: 0,
        tgid: 0,
        depth: 0,
        kind: 0,
        end: 0,
        words: [0; MOST_WORDS],
    };

    pub(crate) fn stack(&self) -> &[u64] {
        &self.words[..usize::from(self.depth)]
    }
}

/// `struct unwind_process`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) start_stack: u64,
    pub(crate) mappings_at: u32,
    pub(crate) mappings: u32,
    pub(crate) generation: u32,
    pub(crate) python: u32,
}

/// `struct unwind_file`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileKey {
    pub(crate) inode: u64,
    pub(crate) offset: u64,
    pub(crate) changed_ns: u64,
    pub(crate) device: u32,
    pub(crate) pad: u32,
}

/// `struct unwind_file_table`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileTable {
    pub(crate) shift: u64,
    pub(crate) pages_at: u32,
    pub(crate) pages: u32,
}

/// `struct user_regs`: words in its order, and where those with names are.
pub(crate) type Registers = [u64; 21];
pub(crate) mod at {
    pub(crate) const BP: usize = 4;
    pub(crate) const CX: usize = 11;
    pub(crate) const ORIG_AX: usize = 15;
    pub(crate) const IP: usize = 16;
    pub(crate) const CS: usize = 17;
    pub(crate) const SP: usize = 19;
    /// Registers by DWARF number; those of rbp and rsp are not asked for.
    pub(crate) const DWARF: [(u8, usize); 14] = [
        (0, 10),
        (1, 12),
        (2, 11),
        (3, 5),
        (4, 13),
        (5, 14),
        (8, 9),
        (9, 8),
        (10, 7),
        (11, 6),
        (12, 3),
        (13, 2),
        (14, 1),
        (15, 0),
    ];
}

/// One thread runs it.
pub(crate) struct Unwinder {
    pub(crate) host: Host,
}

impl Unwinder {
    pub(crate) fn forget(&self) {
        self.host.tell("host_forget", ());
        self.host
            .tell("host_lack", (ptr::null::<std::ffi::c_char>(),));
    }

    pub(crate) fn lack(&self, what: &str) {
        let what = CString::new(what).expect("no zeros");
        self.host.tell("host_lack", (what.as_ptr(),));
    }

    pub(crate) fn walk_by(&self, mode: u32) {
        self.host.tell("host_walk_by", (mode,));
    }

    pub(crate) fn set(&self, now: u64, cpu: u32, task: Task) {
        self.host.tell("host_set", (now, cpu, task));
    }

    pub(crate) fn write(&self, at: u32, words: &[u32]) {
        let count = u32::try_from(words.len()).expect("few");
        self.host.tell("host_words", (at, words.as_ptr(), count));
    }

    pub(crate) fn rules(&self, rules: &[[u8; 8]]) {
        let count = u32::try_from(rules.len()).expect("few");
        self.host.tell("host_rules", (rules.as_ptr(), count));
    }

    pub(crate) fn process(&self, tgid: u32, process: Option<&Process>) {
        self.host.tell(
            "host_process",
            (tgid, process.map_or(ptr::null(), ptr::from_ref)),
        );
    }

    pub(crate) fn process_of(&self, tgid: u32) -> Option<Process> {
        let mut process = Process::default();
        let is_there = self
            .host
            .ask::<bool>("host_process_of", (tgid, &mut process));
        is_there.then_some(process)
    }

    pub(crate) fn file(&self, key: &FileKey, table: &FileTable) {
        self.host.tell("host_file", (key, table));
    }

    pub(crate) fn thread(
        &self,
        tgid: u32,
        flags: u32,
        memory: bool,
        start_stack: u64,
        vdso: u64,
    ) -> Task {
        self.host
            .ask::<Task>("host_thread", (tgid, flags, memory, start_stack, vdso))
    }

    pub(crate) fn enter(&self, task: Task, registers: &Registers) {
        self.host.tell("host_enter", (task, registers));
    }

    pub(crate) fn remember(&self, memory: &Memory) {
        self.host.tell(
            "host_remember",
            (read as Reader, ptr::from_ref(memory).cast::<c_void>()),
        );
    }

    /// The id of the stack.
    pub(crate) fn user_stack(&self, slot: u32, task: Task, tgid: u32) -> u64 {
        self.host.ask::<u64>("host_user_stack", (slot, task, tgid))
    }

    /// The same from an instruction, a stack and a frame.
    pub(crate) fn user_stack_from(&self, slot: u32, task: Task, tgid: u32, from: [u64; 3]) -> u64 {
        let from = (slot, task, tgid, &from);
        self.host.ask("host_user_stack_from", from)
    }

    /// Number of looks into tables, of which a search takes several.
    pub(crate) fn searches(&self) -> u64 {
        self.host.ask::<u64>("host_searches", ())
    }

    /// Asks the next walks in a scratch which frames lie inside of a place on the stack.
    pub(crate) fn compare(&self, slot: u32, outer_sp: u64) {
        self.host.tell("host_compare", (slot, outer_sp));
    }

    /// Frames inside of it, from the leaf on.
    pub(crate) fn inside(&self, slot: u32) -> u32 {
        self.host.ask("host_inside", (slot,))
    }

    /// The record in a scratch.
    pub(crate) fn walked(&self, slot: u32) -> Record {
        let mut record = Record::EMPTY;
        self.host.tell("host_walked", (slot, &mut record));
        record
    }

    /// The record that was sent since the last look, with its length in bytes and its flags.
    pub(crate) fn take_sent(&self) -> Option<(Record, [u64; 2])> {
        let (mut record, mut told) = (Record::EMPTY, [0_u64; 2]);
        let to = (&mut record, &mut told);
        let is_sent = self.host.ask::<bool>("host_take_sent", to);
        is_sent.then_some((record, told))
    }
}
