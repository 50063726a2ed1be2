//! The unwinder on this machine, and what it is handed: `host/unwind.c`.

use std::ffi::{CString, c_void};
use std::ptr;

use crate::host::Host;
use crate::host::machine::Task;
use crate::memory::{Memory, Reader, read};

pub(crate) const MOST_DEPTH: usize = 127;

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
    pub(crate) addresses: [u64; MOST_DEPTH],
}

impl Record {
    pub(crate) const EMPTY: Self = Self {
        id: 0,
        time_ns: 0,
        tgid: 0,
        depth: 0,
        kind: 0,
        end: 0,
        addresses: [0; MOST_DEPTH],
    };

    pub(crate) fn stack(&self) -> &[u64] {
        &self.addresses[..usize::from(self.depth)]
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
    pub(crate) pad: u32,
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
    /// # Safety
    ///
    /// `F` is the function's type.
    pub(crate) unsafe fn call<F: Copy>(&self, name: &str) -> F {
        // SAFETY: by our caller's word; the object lives as long as it is called.
        unsafe { *self.host.function::<F>(name) }
    }

    pub(crate) fn forget(&self) {
        // SAFETY: their types.
        unsafe {
            self.call::<unsafe extern "C" fn()>("host_forget")();
            self.call::<unsafe extern "C" fn(*const i8)>("host_lack")(ptr::null());
        }
    }

    pub(crate) fn lack(&self, what: &str) {
        let what = CString::new(what).expect("no zeros");
        // SAFETY: its type.
        unsafe {
            self.call::<unsafe extern "C" fn(*const std::ffi::c_char)>("host_lack")(what.as_ptr())
        };
    }

    pub(crate) fn walk_by(&self, mode: u32) {
        // SAFETY: its type.
        unsafe { self.call::<unsafe extern "C" fn(u32)>("host_walk_by")(mode) };
    }

    pub(crate) fn set(&self, now: u64, cpu: u32, task: Task) {
        // SAFETY: its type.
        unsafe { self.call::<unsafe extern "C" fn(u64, u32, Task)>("host_set")(now, cpu, task) };
    }

    pub(crate) fn write(&self, at: u32, words: &[u32]) {
        let count = u32::try_from(words.len()).expect("few");
        // SAFETY: its type.
        unsafe {
            type Words = unsafe extern "C" fn(u32, *const u32, u32);
            self.call::<Words>("host_words")(at, words.as_ptr(), count);
        }
    }

    pub(crate) fn rules(&self, rules: &[[u8; 8]]) {
        let count = u32::try_from(rules.len()).expect("few");
        // SAFETY: its type, and that of a rule.
        unsafe {
            type Rules = unsafe extern "C" fn(*const [u8; 8], u32);
            self.call::<Rules>("host_rules")(rules.as_ptr(), count);
        }
    }

    pub(crate) fn process(&self, tgid: u32, process: Option<&Process>) {
        // SAFETY: its type.
        unsafe {
            type Set = unsafe extern "C" fn(u32, *const Process);
            self.call::<Set>("host_process")(tgid, process.map_or(ptr::null(), ptr::from_ref));
        }
    }

    pub(crate) fn process_of(&self, tgid: u32) -> Option<Process> {
        let mut process = Process::default();
        // SAFETY: its type.
        let is_there = unsafe {
            type Get = unsafe extern "C" fn(u32, *mut Process) -> bool;
            self.call::<Get>("host_process_of")(tgid, &raw mut process)
        };
        is_there.then_some(process)
    }

    pub(crate) fn file(&self, key: &FileKey, table: &FileTable) {
        // SAFETY: its type.
        unsafe {
            type Add = unsafe extern "C" fn(*const FileKey, *const FileTable);
            self.call::<Add>("host_file")(key, table);
        }
    }

    pub(crate) fn thread(
        &self,
        tgid: u32,
        flags: u32,
        memory: bool,
        start_stack: u64,
        vdso: u64,
    ) -> Task {
        // SAFETY: its type.
        unsafe {
            type Make = unsafe extern "C" fn(u32, u32, bool, u64, u64) -> Task;
            self.call::<Make>("host_thread")(tgid, flags, memory, start_stack, vdso)
        }
    }

    pub(crate) fn enter(&self, task: Task, registers: &Registers) {
        // SAFETY: its type; the task lives until the host forgets it.
        unsafe {
            self.call::<unsafe extern "C" fn(Task, *const Registers)>("host_enter")(task, registers)
        };
    }

    pub(crate) fn remember(&self, memory: &Memory) {
        // SAFETY: its type; who walks keeps the memory.
        unsafe {
            type Remember = unsafe extern "C" fn(Reader, *const c_void);
            self.call::<Remember>("host_remember")(read, ptr::from_ref(memory).cast());
        }
    }

    /// The id of the stack.
    pub(crate) fn user_stack(&self, slot: u32, task: Task, tgid: u32) -> u64 {
        // SAFETY: its type.
        unsafe {
            type Walk = unsafe extern "C" fn(u32, Task, u32) -> u64;
            self.call::<Walk>("host_user_stack")(slot, task, tgid)
        }
    }

    /// The same from an instruction, a stack and a frame.
    pub(crate) fn user_stack_from(&self, slot: u32, task: Task, tgid: u32, from: [u64; 3]) -> u64 {
        // SAFETY: its type.
        unsafe {
            type Walk = unsafe extern "C" fn(u32, Task, u32, *const [u64; 3]) -> u64;
            self.call::<Walk>("host_user_stack_from")(slot, task, tgid, &raw const from)
        }
    }

    /// Number of looks into tables, of which a search takes several.
    pub(crate) fn searches(&self) -> u64 {
        // SAFETY: its type.
        unsafe { self.call::<unsafe extern "C" fn() -> u64>("host_searches")() }
    }

    /// Asks the next walks in a scratch which frames lie inside of a place on the stack.
    pub(crate) fn compare(&self, slot: u32, outer_sp: u64) {
        // SAFETY: its type.
        unsafe { self.call::<unsafe extern "C" fn(u32, u64)>("host_compare")(slot, outer_sp) };
    }

    /// Frames inside of it, from the leaf on.
    pub(crate) fn inside(&self, slot: u32) -> u32 {
        // SAFETY: its type.
        unsafe { self.call::<unsafe extern "C" fn(u32) -> u32>("host_inside")(slot) }
    }

    /// The record in a scratch.
    pub(crate) fn walked(&self, slot: u32) -> Record {
        let mut record = Record::EMPTY;
        // SAFETY: its type.
        unsafe {
            self.call::<unsafe extern "C" fn(u32, *mut Record)>("host_walked")(
                slot,
                &raw mut record,
            )
        };
        record
    }

    /// The record that was sent since the last look, with its length in bytes and its flags.
    pub(crate) fn take_sent(&self) -> Option<(Record, [u64; 2])> {
        let (mut record, mut told) = (Record::EMPTY, [0; 2]);
        // SAFETY: its type.
        let is_sent = unsafe {
            type Take = unsafe extern "C" fn(*mut Record, *mut [u64; 2]) -> bool;
            self.call::<Take>("host_take_sent")(&raw mut record, &raw mut told)
        };
        is_sent.then_some((record, told))
    }
}
