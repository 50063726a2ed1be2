//! A process, read by whoever may.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use python::{Binary, Mapping, Memory, Process};

/// A process.
pub(crate) struct Outside {
    pub(crate) pid: u32,
    memory: File,
}

impl Outside {
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        Ok(Self { pid, memory })
    }

    /// The thread whose block is at this address: glibc has the number there.
    pub(crate) fn tid_of(&self, block: u64) -> u64 {
        let mut bytes = [0; 4];
        let read = self.memory.read_exact_at(&mut bytes, block + 0x2d0);
        read.expect("a thread");
        u32::from_le_bytes(bytes).into()
    }
}

impl Memory for Outside {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(buffer.len() <= 4096);
        self.memory.read_at(buffer, address)
    }
}

impl Process for Outside {
    fn mappings(&self) -> Vec<Mapping> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("a process");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let mappings = maps.lines().filter_map(|line| {
            let path = line.find('/').map(|at| &line[at..])?;
            let mut words = line.split(' ');
            let (start, end) = words.next()?.split_once('-')?;
            Some(Mapping {
                path: path.into(),
                range: number(start)..number(end),
                offset: number(words.nth(1)?),
            })
        });
        mappings.collect()
    }

    fn binary(&self, mapping: &Mapping) -> Option<Arc<Binary>> {
        Binary::read(&File::open(&mapping.path).ok()?).map(Arc::new)
    }
}
