//! Memory of a process that says it was a Python: no panic, an end, and names of bounded length. The first byte is the version; the rest
//! lies from 64 KiB on, as one that was made up whole has it (`corpus`).

#![no_main]

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use python::{Binary, Code, Layout, Mapping, Memory, Process, Runtime, Version, walk};

mod memory;

const BASE: u64 = 0x1_0000;
const RUNTIME: u64 = BASE;
const CODE_TYPE: u64 = BASE + 0x1000;
const FRAME_TYPE: u64 = BASE + 0x1200;
const STATE: u64 = BASE + 0x4000;
const CODE: u64 = BASE + 0x6000;
/// Frames of a walk.
const MOST: usize = 128;
/// Pieces of a page that are read for a code object: its head twice, two strings, the longest line table.
const MOST_READ: usize = 2 + 2 * 6 + 2 + 1024;

struct Whole<'a> {
    version: Version,
    bytes: &'a [u8],
    reads: Cell<usize>,
}

impl Memory for Whole<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(buffer.len() <= 4096);
        self.reads.set(self.reads.get() + 1);
        let at = address
            .checked_sub(BASE)
            .and_then(|at| usize::try_from(at).ok());
        let from = at.and_then(|at| self.bytes.get(at..));
        let from = from.ok_or(io::ErrorKind::NotFound)?;
        let length = from.len().min(buffer.len());
        buffer[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }
}

impl Process for Whole<'_> {
    fn mappings(&self) -> Vec<Mapping> {
        let range = BASE..BASE + 0x10_0000;
        let path = "/usr/bin/python3".into();
        vec![Mapping {
            path,
            range,
            offset: 0,
        }]
    }

    fn binary(&self, _: &Mapping) -> Option<Arc<Binary>> {
        let load = elf::Load {
            offset: 0,
            address: BASE,
            file_size: 1 << 20,
            memory_size: 1 << 20,
            flags: 5,
        };
        Some(Arc::new(Binary {
            loads: vec![load],
            version: Some(self.version),
            runtime: RUNTIME,
            code_type: Some(CODE_TYPE),
            frame_type: Some(FRAME_TYPE),
            loops: Vec::new(),
        }))
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&minor, bytes)) = bytes.split_first() else {
        return;
    };
    // A file of an interpreter, too.
    if let Some(binary) = Binary::read(&memory::file(bytes)) {
        assert!(binary.loops.len() <= 257);
    }
    let version = Version {
        minor,
        micro: Some(0),
    };
    let whole = Whole {
        version,
        bytes,
        reads: Cell::default(),
    };
    let found = Runtime::find(&whole).ok().flatten();
    let assumed = Layout::of(version).map(|layout| Runtime {
        version,
        layout,
        runtime_address: RUNTIME,
        code_type: CODE_TYPE,
        key: 0,
        loops: Vec::new(),
    });
    for runtime in [found, assumed].into_iter().flatten() {
        whole.reads.set(0);
        let stack = walk(&whole, &runtime, STATE, MOST);
        assert!(stack.frames.len() <= MOST);
        assert!(whole.reads.get() <= 2 * (2 * MOST + 1) + 2);
        for thread in runtime.threads(&whole) {
            let _ = runtime.gil(&whole, thread.interpreter);
            runtime.is_bound(&whole, &thread);
        }
        let codes = stack
            .frames
            .iter()
            .map(|frame| (frame.code, frame.instruction()));
        for (code, instruction) in codes.chain([(CODE, 0), (CODE, u32::MAX)]) {
            whole.reads.set(0);
            if let Ok(code) = Code::read(&whole, &runtime, code) {
                assert!(code.name.chars().count() <= 1024 && code.file.chars().count() <= 4096);
                code.line(instruction);
            }
            assert!(whole.reads.get() <= MOST_READ);
        }
    }
});
