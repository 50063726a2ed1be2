//! An interpreter that is made up.

use std::io;
use std::sync::Arc;

use elf::Load;

use crate::layout::{Entries, Instruction, Layout, NONE, Positions};
use crate::memory::Memory;
use crate::version::Version;
use crate::{Binary, Mapping, Process};

/// Its memory begins here.
pub(crate) const BASE: u64 = 0x1_0000;
/// Places in its memory.
pub(crate) const RUNTIME: u64 = BASE;
pub(crate) const CODE_TYPE: u64 = BASE + 0x1000;
pub(crate) const FRAME_TYPE: u64 = BASE + 0x1200;
const MEMBERS: u64 = BASE + 0x1400;
const NAMES: u64 = BASE + 0x1800;
pub(crate) const INTERPRETER: u64 = BASE + 0x2000;
pub(crate) const STATE: u64 = BASE + 0x4000;
const HOLDER: u64 = BASE + 0x4200;
pub(crate) const BLOCK: u64 = BASE + 0x4400;
pub(crate) const FRAMES: u64 = BASE + 0x5000;
pub(crate) const FRAME: u64 = 0x180;
pub(crate) const CODE: u64 = BASE + 0x6000;
pub(crate) const NAME: u64 = BASE + 0x6200;
pub(crate) const FILE: u64 = BASE + 0x6400;
pub(crate) const LINES: u64 = BASE + 0x6600;
const LOCK: u64 = BASE + 0x6700;
const SIZE: usize = 0x6800;
const KEY: u64 = 3;

/// Memory of an interpreter with one thread, of two frames; the outer one is called by C code.
pub(crate) struct Fake {
    pub(crate) version: Version,
    pub(crate) layout: Layout,
    pub(crate) bytes: Vec<u8>,
}

impl Fake {
    pub(crate) fn new(minor: u8) -> Self {
        let version = Version::of_word(3 << 24 | u64::from(minor) << 16).expect("a version");
        let layout = Layout::of(version).expect("a known one");
        let bytes = vec![0; SIZE];
        let mut fake = Self {
            version,
            layout,
            bytes,
        };
        fake.put_types();
        fake.put_table();
        fake.put_threads();
        fake.put_frames();
        fake.put_code();
        fake
    }

    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - BASE) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn set(&mut self, address: u64, offset: u16, word: u64) {
        self.put(address + u64::from(offset), &word.to_le_bytes());
    }

    fn half(&mut self, address: u64, offset: u16, half: u32) {
        self.put(address + u64::from(offset), &half.to_le_bytes());
    }

    fn put_types(&mut self) {
        let layout = self.layout;
        self.set(CODE_TYPE, 32, layout.instructions.into());
        self.set(CODE_TYPE, 240, MEMBERS);
        self.set(FRAME_TYPE, 32, layout.frame_bytes.into());
        for (index, (name, offset)) in crate::members::expected(&layout).into_iter().enumerate() {
            let (entry, at) = (MEMBERS + 40 * index as u64, NAMES + 32 * index as u64);
            self.put(at, name.as_bytes());
            self.set(entry, 0, at);
            self.set(entry, 16, offset.into());
        }
    }

    /// Versions from 3.13 on have it.
    fn put_table(&mut self) {
        let layout = self.layout;
        let places: &[(u16, u16)] = match self.version.minor {
            13 => &PLACES_3_13,
            14 => &PLACES_3_14,
            _ => return,
        };
        self.put(RUNTIME, b"xdebugpy");
        self.set(RUNTIME, 8, 3 << 24 | u64::from(self.version.minor) << 16);
        let values = [
            layout.interpreters,
            layout.next_interpreter,
            layout.threads,
            layout.lock,
            0,
            16,
            8,
            layout.next_thread,
            layout.frame,
            layout.thread_id,
            layout.native_thread_id,
            layout.previous,
            layout.code,
            layout.instruction,
            layout.mark,
            layout.file,
            layout.name,
            layout.lines,
            layout.first_line,
            layout.first_line - 16,
            layout.instructions,
            layout.object_type,
            layout.ascii,
        ];
        for ((group, field), value) in places.iter().zip(values) {
            self.set(RUNTIME, (group + field) * 8, value.into());
        }
    }

    fn put_threads(&mut self) {
        let layout = self.layout;
        self.half(RUNTIME, layout.key, 1);
        self.half(RUNTIME, layout.key + 4, KEY as u32);
        self.set(RUNTIME, layout.interpreters, INTERPRETER);
        self.set(INTERPRETER, layout.threads, STATE);
        let lock = if layout.lock_is_in_runtime {
            RUNTIME + u64::from(layout.lock)
        } else {
            self.set(INTERPRETER, layout.lock, LOCK);
            LOCK
        };
        self.set(lock, 8, STATE);
        self.set(lock, 16, 1);
        self.set(STATE, layout.thread_id, BLOCK);
        if layout.native_thread_id != NONE {
            self.set(STATE, layout.native_thread_id, 77);
        }
        self.set(BLOCK, 0x10, BLOCK);
        self.set(BLOCK, 0x310 + 16 * KEY as u16 + 8, STATE);
        match layout.frame_in_holder {
            NONE => self.set(STATE, layout.frame, FRAMES),
            offset => {
                self.set(STATE, layout.frame, HOLDER);
                self.set(HOLDER, offset, FRAMES);
            }
        }
    }

    fn put_frames(&mut self) {
        let layout = self.layout;
        for index in 0..3 {
            let at = FRAMES + FRAME * index;
            self.set(at, layout.code, CODE | u64::from(layout.code_tag & 1));
            let first = CODE + u64::from(layout.instructions);
            match layout.instruction_form {
                Instruction::Address => self.set(at, layout.instruction, first + 4 * index),
                Instruction::Bytes => self.half(at, layout.instruction, 4 * index as u32),
                Instruction::Units => self.half(at, layout.instruction, 2 * index as u32),
            }
            let is_last = index
                == if layout.entries == Entries::Between {
                    2
                } else {
                    1
                };
            self.set(at, layout.previous, if is_last { 0 } else { at + FRAME });
            if is_last && layout.mark != NONE {
                self.put(at + u64::from(layout.mark), &[layout.marked]);
            }
        }
    }

    fn put_code(&mut self) {
        let layout = self.layout;
        self.set(CODE, layout.object_type, CODE_TYPE);
        self.set(CODE, 16, 20);
        for index in 0..7 {
            self.half(CODE, layout.checksum + 4 * index, u32::from(index) + 5);
        }
        self.half(CODE, layout.first_line, 1000);
        self.set(CODE, layout.name, NAME);
        self.set(CODE, layout.file, FILE);
        self.set(CODE, layout.lines, LINES);
        self.put_text(NAME, b"name", 1, true);
        let file: Vec<u8> = "\u{444}.py"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        self.put_text(FILE, &file, 2, false);
        let table: &[u8] = match layout.positions {
            Positions::Steps => &[4, 7],
            Positions::Ranges => &[4, 0, 4, 7],
            // Two instructions each, without columns: the first line, and seven behind.
            Positions::Locations => &[0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 1, 14],
        };
        self.set(LINES, 16, table.len() as u64);
        self.put(LINES + 32, table);
    }

    pub(crate) fn put_text(&mut self, address: u64, bytes: &[u8], width: u32, is_ascii: bool) {
        let layout = self.layout;
        self.set(address, 16, bytes.len() as u64 / u64::from(width));
        self.half(address, 32, width << 2 | 1 << 5 | u32::from(is_ascii) << 6);
        let data = if is_ascii { layout.ascii } else { layout.wide };
        self.put(address + u64::from(data), bytes);
    }
}

/// Groups of the table and fields in them, in words, in the order of the values above.
const PLACES_3_13: [(u16, u16); 23] = places([3, 6, 9, 14, 19, 28, 34, 44, 67]);
const PLACES_3_14: [(u16, u16); 23] = places([3, 6, 9, 15, 22, 31, 39, 50, 77]);

const fn places(groups: [u16; 9]) -> [(u16, u16); 23] {
    let [
        runtime,
        interpreter,
        head,
        lock,
        thread,
        frame,
        code,
        object,
        unicode,
    ] = groups;
    [
        (runtime, 2),
        (interpreter, 2),
        (head, 0),
        (lock, 0),
        (lock, 1),
        (lock, 3),
        (lock, 4),
        (thread, 2),
        (thread, 4),
        (thread, 5),
        (thread, 6),
        (frame, 1),
        (frame, 2),
        (frame, 3),
        (frame, 5),
        (code, 1),
        (code, 3),
        (code, 4),
        (code, 5),
        (code, 6),
        (code, 9),
        (object, 1),
        (unicode, 3),
    ]
}

impl Memory for Fake {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let from = address
            .checked_sub(BASE)
            .and_then(|at| self.bytes.get(at as usize..));
        let bytes = from.filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or(io::ErrorKind::NotFound)?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }
}

impl Process for Fake {
    fn mappings(&self) -> Vec<Mapping> {
        vec![Mapping {
            path: "/usr/bin/python3".into(),
            range: BASE..BASE + SIZE as u64,
            offset: 0,
        }]
    }

    fn binary(&self, _: &Mapping) -> Option<Arc<Binary>> {
        Some(Arc::new(Binary {
            loads: vec![Load {
                offset: 0,
                address: BASE,
                file_size: SIZE as u64,
                memory_size: SIZE as u64,
                flags: 5,
            }],
            version: Some(self.version),
            runtime: RUNTIME,
            code_type: Some(CODE_TYPE),
            frame_type: Some(FRAME_TYPE),
            loops: vec![BASE..BASE + 16, BASE + 32..BASE + 48],
        }))
    }
}
