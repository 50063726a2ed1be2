//! ELF headers, read by hand: what the tests hold the tools to must not come from the tools' own ELF code.

use std::collections::HashMap;
use std::fs;

/// From the entry point to behind its only call: 38 bytes in glibc's x86-64 start code, a few more in ld.so's.
const ENTRY_BYTES: u64 = 0x30;
/// Loadable segment.
const PT_LOAD: u32 = 1;

/// Where a file's code begins to run, and how its addresses relate to its offsets.
pub(crate) struct Elf {
    entry: u64,
    /// Offset in the file, address, bytes.
    segments: Vec<(u64, u64, u64)>,
}

impl Elf {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let field = |at: usize, size: usize| {
            let field = bytes.get(at..at + size)?;
            Some(
                field
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte)),
            )
        };
        let place = |at| usize::try_from(field(at, 8)?).ok();
        // 64-bit, little-endian.
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (headers, count) = (place(32)?, usize::try_from(field(56, 2)?).ok()?);
        let mut segments = Vec::new();
        for header in (0..count).map(|nth| headers + nth * 56) {
            if field(header, 4)? == u64::from(PT_LOAD) {
                segments.push((
                    field(header + 8, 8)?,
                    field(header + 16, 8)?,
                    field(header + 32, 8)?,
                ));
            }
        }
        Some(Self {
            entry: field(24, 8)?,
            segments,
        })
    }

    fn address(&self, offset: u64) -> Option<u64> {
        let inside = |(start, _, size): &&(u64, u64, u64)| (*start..start + size).contains(&offset);
        let (start, address, _) = self.segments.iter().find(inside)?;
        Some(offset - start + address)
    }
}

/// Files by path, read once.
#[derive(Default)]
pub(crate) struct Elves {
    read: HashMap<String, Option<Elf>>,
}

impl Elves {
    fn get(&mut self, path: &str) -> Option<&Elf> {
        let read = || Elf::parse(&fs::read(path).ok()?);
        self.read
            .entry(path.to_owned())
            .or_insert_with(read)
            .as_ref()
    }

    /// Whether `address` is in the code that the kernel starts `path` with.
    pub(crate) fn is_entry(&mut self, path: &str, address: u64) -> bool {
        self.get(path)
            .is_some_and(|elf| (elf.entry..elf.entry + ENTRY_BYTES).contains(&address))
    }

    /// Address in `path`'s own numbering of a place in the file; files that are not there have none.
    pub(crate) fn address(&mut self, path: &str, offset: u64) -> Option<u64> {
        self.get(path)?.address(offset)
    }
}
