//! Finds the function table of a Go program, and where its text starts.

mod header;
mod relocations;
mod table;

use std::cell::Cell;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

pub use header::{Header, Image, Layout};
pub use table::Table;

use crate::headers::Headers;
use relocations::Relocations;

/// Bytes looked through, relocations and all, for a table that no section header names: a hostile file costs a second.
const MAX_SEARCH: u64 = 512 << 20;
/// Read at once; a multiple of eight.
const CHUNK: usize = 256 << 10;
/// Places that look like what is searched for: real programs have one, or a few in Go's own tools.
const MAX_CANDIDATES: usize = 8;
/// Place of the text's start in `runtime.moduledata`, in pointers: behind the header's address, six slices, the function
/// index and two code addresses. So since Go 1.16, up to 1.27 at least.
const TEXT_IN_MODULE_DATA: usize = 1 + 6 * 3 + 3;

/// A Go program's file with what is known about it.
pub struct GoFile<'a> {
    file: &'a File,
    headers: &'a Headers,
    /// Bytes that may still be looked through.
    left: Cell<u64>,
}

impl Image for GoFile<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some((offset, left)) = self.headers.offset(address) else {
            return 0;
        };
        let wanted = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        match self.file.read_exact_at(&mut buffer[..wanted], offset) {
            Ok(()) => wanted,
            Err(_) => 0,
        }
    }

    fn read_relocated(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.fill(address, buffer)?;
        if let Some(relocations) = self.relocations() {
            relocations.apply(self, address, buffer);
        }
        Some(())
    }

    fn may_search(&self, bytes: usize) -> bool {
        let left = self.left.get().checked_sub(bytes as u64);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }
}

impl<'a> GoFile<'a> {
    /// Nothing was read of it yet.
    pub fn new(file: &'a File, headers: &'a Headers) -> Self {
        Self {
            file,
            headers,
            left: Cell::new(MAX_SEARCH),
        }
    }

    fn relocations(&self) -> Option<Relocations> {
        Relocations::read(self.headers.dynamic?, self)
    }

    /// The functions, if this is a Go program.
    pub fn functions(&self) -> Option<Table> {
        let go = &self.headers.go;
        if let Some(address) = go.table {
            return self.table(address);
        }
        // Linkers other than Go's may put the table into a larger section.
        if self.headers.sectioned && !go.present {
            return None;
        }
        let mut tried = 0;
        let mut found = None;
        self.scan(|address, bytes| {
            if !Header::may_start(bytes) {
                return ControlFlow::Continue(());
            }
            tried += 1;
            found = self.table(address);
            if found.is_some() || tried >= MAX_CANDIDATES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        found
    }

    fn table(&self, address: u64) -> Option<Table> {
        let header = Header::read(self, address)?;
        let text = match header.text_at {
            Some(at) => Some(self.text_start(&header, at)?),
            None => None,
        };
        let table = Table::read(self, header, text)?;
        let code = table.code()?;
        let inside = self.headers.is_code(code.start) && self.headers.is_code(code.end - 1);
        inside.then_some(table)
    }

    /// Go's own text: with C code linked in, the section `.text` starts elsewhere.
    fn text_start(&self, header: &Header, at: u64) -> Option<u64> {
        let text = header.pointer(self, at)?;
        if text != 0 {
            return Some(text);
        }
        match self.headers.go.module_data {
            Some(module_data) => self.text_of(header, module_data),
            None => self
                .pointers_to(header)
                .into_iter()
                .find_map(|address| self.text_of(header, address)),
        }
    }

    /// The text's start out of the `runtime.moduledata` at `address`, if that is one: it points to the table and its names.
    fn text_of(&self, header: &Header, address: u64) -> Option<u64> {
        let mut bytes = [0; (TEXT_IN_MODULE_DATA + 1) * 8];
        let bytes = &mut bytes[..(TEXT_IN_MODULE_DATA + 1) * header.word()];
        self.read_relocated(address, bytes)?;
        let mut pointers = bytes.chunks_exact(header.word()).map(|b| header.number(b));
        let is_one =
            pointers.next() == Some(header.address) && pointers.next() == Some(header.names);
        let text = pointers.nth(TEXT_IN_MODULE_DATA - 2)?;
        (is_one && self.headers.is_code(text)).then_some(text)
    }

    /// Places of pointers to the table.
    fn pointers_to(&self, header: &Header) -> Vec<u64> {
        let mut found = match self.relocations() {
            Some(relocations) => relocations.pointers_to(self, header.address, MAX_CANDIDATES),
            None => Vec::new(),
        };
        self.scan(|address, bytes| {
            let (low, high) = bytes.split_at(header.word());
            for (at, bytes) in [(address, low), (address.wrapping_add(4), high)] {
                if !bytes.is_empty() && header.number(bytes) == header.address {
                    found.push(at);
                }
            }
            if found.len() >= MAX_CANDIDATES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        found
    }

    /// Shows `look` every eight bytes of what will be in memory.
    fn scan(&self, mut look: impl FnMut(u64, [u8; 8]) -> ControlFlow<()>) {
        let mut chunk = vec![0; CHUNK];
        for load in &self.headers.loads {
            let Some(end) = load.address.checked_add(load.file_size) else {
                continue;
            };
            let mut next = load.address.checked_next_multiple_of(8);
            while let Some(at) = next.filter(|&at| at < end) {
                if !self.may_search(CHUNK) {
                    return;
                }
                let read = self.read(at, &mut chunk);
                let (words, _) = chunk[..read].as_chunks::<8>();
                for (n, word) in words.iter().enumerate() {
                    if look(at.wrapping_add(8 * n as u64), *word).is_break() {
                        return;
                    }
                }
                if read < CHUNK {
                    break;
                }
                next = at.checked_add(CHUNK as u64);
            }
        }
    }
}

#[cfg(test)]
mod sample;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::sample::{NEWEST, Style};
    use super::*;
    use crate::damage::Seeded;
    use crate::headers::{Dynamic, GoMarks};
    use crate::load::Load;

    const BASE: u64 = 0x1000;
    const TABLE: u64 = BASE + 0x40;
    const TEXT: u64 = 0x10_0000;
    const FUNCTIONS: [(u64, &[u8]); 2] = [(TEXT, b"main.main"), (TEXT + 0x80, b"main.main.func1")];
    const END: u64 = TEXT + 0x100;
    /// `R_X86_64_RELATIVE`.
    const RELATIVE: u32 = 8;

    /// A position-independent program in which `pointers` (place, value) are zero until the dynamic linker sets them.
    fn program(mut table: Vec<u8>, pointers: &[(u64, u64)]) -> (Vec<u8>, Headers) {
        let module_data = (TABLE + table.len() as u64).next_multiple_of(8);
        table.resize(usize::try_from(module_data - TABLE).unwrap() + 23 * 8, 0);
        let relocations = TABLE + table.len() as u64;
        let mut bytes = Vec::new();
        let size = pointers.len() as u64 * 24;
        for word in [7, relocations, 8, size, 0, 0, 0, 0] {
            NEWEST.put(&mut bytes, word, 8);
        }
        bytes.extend(table);
        for (place, value) in pointers {
            let at = usize::try_from(place - BASE).unwrap();
            bytes[at..at + 8].fill(0);
            for word in [*place, RELATIVE.into(), *value] {
                NEWEST.put(&mut bytes, word, 8);
            }
        }
        let load = |address, file_size, flags| Load {
            offset: 0,
            address,
            file_size,
            memory_size: file_size,
            flags,
        };
        let headers = Headers {
            loads: vec![
                load(BASE, bytes.len() as u64, 0),
                load(TEXT, 0x100, object::elf::PF_X.0),
            ],
            dynamic: Some(Dynamic {
                address: BASE,
                relative: RELATIVE,
            }),
            ..Headers::default()
        };
        (bytes, headers)
    }

    /// A program by Go 1.26: only `runtime.moduledata` says where the text starts.
    fn newest() -> (Vec<u8>, Headers, u64) {
        let mut table = NEWEST.table(TEXT, &FUNCTIONS, END);
        table[24..32].fill(0);
        let names = TABLE + u64::from_le_bytes(table[32..40].try_into().unwrap());
        let at = (TABLE + table.len() as u64).next_multiple_of(8);
        let pointers = [(at, TABLE), (at + 8, names), (at + 22 * 8, TEXT)];
        let (bytes, headers) = program(table, &pointers);
        (bytes, headers, at)
    }

    /// A program by Go 1.16: the list of functions is made of pointers.
    fn pointers() -> (Vec<u8>, Headers) {
        let style = Style {
            magic: 0xffff_fffa,
            ..NEWEST
        };
        let list = TABLE + 8 + 7 * 8;
        let data = list + 5 * 8;
        let places = [list, list + 16, list + 32, data, data + 12];
        let values = [TEXT, TEXT + 0x80, END, TEXT, TEXT + 0x80];
        let pointers: Vec<_> = places.into_iter().zip(values).collect();
        program(style.table(TEXT, &FUNCTIONS, END), &pointers)
    }

    fn name(bytes: &[u8], headers: &Headers, address: u64) -> Option<String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let image = GoFile::new(&file, headers);
        image.functions()?.name(&image, address)
    }

    #[test]
    fn pointers_that_only_relocations_know() {
        let (bytes, headers) = pointers();
        let found = name(&bytes, &headers, TEXT + 0x90);
        assert_eq!(found.as_deref(), Some("main.main.func1"));
        let unknown = Headers {
            dynamic: None,
            ..headers
        };
        assert_eq!(name(&bytes, &unknown, TEXT + 0x90), None);
    }

    #[test]
    fn the_text_start_in_module_data() {
        let (bytes, mut headers, module_data) = newest();
        assert_eq!(name(&bytes, &headers, TEXT).as_deref(), Some("main.main"));
        for (table, module_data, found) in [
            (Some(TABLE), None, true),
            (Some(TABLE), Some(module_data), true),
            (Some(TABLE), Some(module_data + 8), false),
            (Some(TABLE + 8), None, false),
        ] {
            headers.go = GoMarks {
                present: true,
                table,
                module_data,
            };
            assert_eq!(
                name(&bytes, &headers, TEXT).is_some(),
                found,
                "{:x?}",
                headers.go
            );
        }
        // Text that is no code would shift every name.
        headers.go = GoMarks::default();
        headers.loads[1].address += 0x100;
        assert_eq!(name(&bytes, &headers, TEXT), None);
    }

    #[test]
    fn only_go_programs_are_searched() {
        let (bytes, mut headers, _) = newest();
        headers.sectioned = true;
        assert_eq!(name(&bytes, &headers, TEXT), None);
        headers.go.present = true;
        assert!(name(&bytes, &headers, TEXT).is_some());
    }

    #[test]
    fn damaged_and_truncated_programs() {
        let mut seeded = Seeded(7);
        let mut found = 0;
        let (newest, newest_headers, _) = newest();
        let (old, old_headers) = pointers();
        for round in 0..1500 {
            for (whole, headers) in [(&newest, &newest_headers), (&old, &old_headers)] {
                let mut bytes = whole.clone();
                seeded.damage(&mut bytes);
                if round % 4 == 0 {
                    bytes.truncate(seeded.below(bytes.len()));
                }
                for address in [TEXT, END - 1, u64::MAX] {
                    found += usize::from(name(&bytes, headers, address).is_some());
                }
            }
        }
        assert!(found > 500, "{found} of 9,000");
    }

    #[test]
    fn segments_at_the_end_of_the_address_space() {
        let (bytes, whole, _) = newest();
        for address in [u64::MAX - 0x40, u64::MAX - 7, u64::MAX, 1, BASE + 4] {
            for file_size in [0, 1, 0x1000, u64::MAX] {
                let mut headers = whole.clone();
                headers.loads[0].address = address;
                headers.loads[0].file_size = file_size;
                headers.loads[1].file_size = file_size;
                headers.dynamic = Some(Dynamic {
                    address,
                    relative: RELATIVE,
                });
                headers.go.table = (file_size == 1).then_some(address);
                let _ = name(&bytes, &headers, address);
            }
        }
    }
}
