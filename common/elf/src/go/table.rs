//! Go's function table (pclntab), which a Go program needs for its own stack traces and so keeps when it is stripped.
//!
//! The layouts are those that Go's `debug/gosym/pclntab.go` and `runtime/symtab.go` read. Of each function only start
//! and end, and where its name is, are kept; names are read when they are asked for. Functions that were inlined have
//! no entry here and count to their caller.

use std::ops::Range;

use super::header::{Header, Image};
use crate::MAX_NAME;

/// Bytes of a name read at once; most have less than 64.
const NAME_STEP: usize = 128;

/// One function.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// From the text's start.
    start: u32,
    /// Its data, from [`Header::data`].
    data: u32,
}

/// The functions of one program, by address.
#[derive(Debug)]
pub struct Table {
    header: Header,
    text: u64,
    entries: Vec<Entry>,
    /// End of the last function, from the text's start.
    end: u32,
}

impl Table {
    /// Reads the list of functions; `text` is where the text starts, for layouts that count from there.
    pub(super) fn read(image: &impl Image, header: Header, text: Option<u64>) -> Option<Self> {
        let width = header.width();
        // Start and data of each function, then the end of the last one.
        let fields = usize::try_from(header.functions).ok()? * 2 + 1;
        let mut bytes = vec![0; fields * width];
        match header.text_at {
            Some(_) => image.fill(header.functab, &mut bytes)?,
            None => image.read_relocated(header.functab, &mut bytes)?,
        }
        let mut numbers = bytes.chunks_exact(width).map(|b| header.number(b));
        let first = header.number(bytes.get(..width)?);
        let (base, text) = match text {
            Some(text) => (0, text),
            None => (first, first),
        };
        let offset = |address: u64| u32::try_from(address.checked_sub(base)?).ok();
        let mut entries = Vec::with_capacity(fields / 2);
        let mut last = 0;
        for _ in 0..header.functions {
            let start = offset(numbers.next()?).filter(|&s| s >= last)?;
            let data = u32::try_from(numbers.next()?).ok()?;
            entries.push(Entry { start, data });
            last = start;
        }
        let end = offset(numbers.next()?).filter(|&e| e > last)?;
        let table = Self {
            header,
            text,
            entries,
            end,
        };
        table.agrees(image, first).then_some(table)
    }

    /// True if the first function's own data says the same start: bytes that only look like a table do not.
    fn agrees(&self, image: &impl Image, first: u64) -> bool {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.header.width()];
        let address = self.header.data.checked_add(self.entries[0].data.into());
        address.is_some_and(|a| image.read_relocated(a, bytes).is_some())
            && self.header.number(bytes) == first
    }

    /// From the first function to the end of the last.
    pub fn code(&self) -> Option<Range<u64>> {
        let address = |offset: u32| self.text.checked_add(offset.into());
        Some(address(self.entries.first()?.start)?..address(self.end)?)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// The name of the function at `address`.
    pub fn name(&self, image: &impl Image, address: u64) -> Option<String> {
        let offset = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let behind = self.entries.partition_point(|e| e.start <= offset);
        let entry = self.entries.get(behind.checked_sub(1)?)?;
        if offset >= self.end {
            return None;
        }
        // The start address comes first in a function's data, then the name's place (a signed 32-bit number).
        let skip = u64::from(entry.data) + self.header.width() as u64;
        let mut place = [0; 4];
        image.fill(self.header.data.checked_add(skip)?, &mut place)?;
        let place = u32::try_from(self.header.number(&place)).ok()?;
        let place = i32::try_from(place).ok()?;
        string(
            image,
            self.header
                .names
                .checked_add(u64::from(place.unsigned_abs()))?,
        )
    }
}

/// The text up to the next NUL, cut like other names; none if it is empty or has no end.
fn string(image: &impl Image, address: u64) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let mut step = [0; NAME_STEP];
        let read = image.read(address.checked_add(text.len() as u64)?, &mut step);
        let step = &step[..read];
        let end = step.iter().position(|&b| b == 0);
        text.extend_from_slice(&step[..end.unwrap_or(read)]);
        if end.is_some() {
            return (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned());
        }
        if read < NAME_STEP {
            return None;
        }
        if text.len() >= MAX_NAME {
            return Some(format!("{}…", String::from_utf8_lossy(&text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Flat, NEWEST, Style};
    use super::*;
    use crate::damage::Seeded;

    const TABLE: u64 = 0x50_0000;
    const TEXT: u64 = 0x40_1000;
    const END: u64 = TEXT + 0x300;
    const FUNCTIONS: [(u64, &[u8]); 4] = [
        (TEXT, b"internal/cpu.Initialize"),
        (TEXT + 0x40, b"main.(*T).Method"),
        (TEXT + 0x100, b"main.Map[...].func1"),
        (TEXT + 0x200, "main.größe\u{b7}1".as_bytes()),
    ];

    fn read(bytes: Vec<u8>) -> (Flat, Option<Table>) {
        let image = Flat {
            address: TABLE,
            bytes,
        };
        let table = Header::read(&image, TABLE).and_then(|header| {
            let text = match header.text_at {
                Some(at) => Some(header.pointer(&image, at)?),
                None => None,
            };
            Table::read(&image, header, text)
        });
        (image, table)
    }

    #[test]
    fn every_layout_names_the_same_functions() {
        for style in Style::all() {
            let (image, table) = read(style.table(TEXT, &FUNCTIONS, END));
            let table = table.unwrap_or_else(|| panic!("{style:x?}"));
            let name = |address| table.name(&image, address);
            for (n, (start, expected)) in FUNCTIONS.iter().enumerate() {
                let end = FUNCTIONS.get(n + 1).map_or(END, |f| f.0);
                for address in [*start, (start + end) / 2, end - 1] {
                    let found = name(address).map(String::into_bytes);
                    assert_eq!(found.as_deref(), Some(*expected), "{style:x?}");
                }
            }
            for outside in [0, TEXT - 1, END, u64::MAX] {
                assert_eq!(name(outside), None, "{style:x?}");
            }
            assert_eq!(table.code(), Some(TEXT..END));
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let whole = NEWEST.table(TEXT, &FUNCTIONS, END);
        let functab = 8 + 8 * 8;
        let data = functab + 9 * 4;
        for (at, byte, what) in [
            (0, 0xf2, "magic"),
            (4, 1, "zero"),
            (6, 3, "instruction size"),
            (7, 2, "pointer size"),
            (8, 0, "no function"),
            (8, 9, "more functions than there are"),
            (8 + 3, 1, "16 million functions"),
            (functab + 2 * 8 + 1, 0, "not in order"),
            (functab + 9 * 4 - 3, 0, "end before the last start"),
            (data, 1, "another start"),
        ] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            assert!(read(bytes).1.is_none(), "{what}");
        }
        assert!(read(whole).1.is_some());
    }

    #[test]
    fn names_without_text_or_end() {
        let long = vec![b'x'; 2 * MAX_NAME];
        let names: [(u64, &[u8]); 3] = [(TEXT, b""), (TEXT + 1, &long), (TEXT + 2, b"last")];
        let mut bytes = NEWEST.table(TEXT, &names, END);
        bytes.pop();
        let (image, table) = read(bytes);
        let table = table.unwrap();
        assert_eq!(table.name(&image, TEXT), None);
        let cut = table.name(&image, TEXT + 1).unwrap();
        assert_eq!(cut.chars().count(), MAX_NAME + 1);
        assert!(cut.ends_with("x…"));
        assert_eq!(table.name(&image, TEXT + 2), None, "no NUL behind it");
    }

    /// Nothing to find but panics, endless loops and wrong sizes: any name is as good as another in damaged bytes.
    fn survives(bytes: Vec<u8>) -> usize {
        let (image, table) = read(bytes);
        let Some(table) = table else { return 0 };
        assert!(table.bytes() <= image.bytes.len() * 8);
        let code = table.code();
        assert!(code.is_none_or(|c| c.start < c.end));
        for address in (TEXT - 8..END + 8).step_by(8).chain([0, u64::MAX]) {
            let name = table.name(&image, address);
            assert!(name.is_none_or(|n| n.len() <= 3 * image.bytes.len()));
        }
        1
    }

    #[test]
    fn truncated_tables() {
        for style in Style::all() {
            let whole = style.table(TEXT, &FUNCTIONS, END);
            for length in 0..=whole.len() {
                survives(whole[..length].to_vec());
            }
        }
    }

    #[test]
    fn damaged_tables() {
        let mut seeded = Seeded(1);
        let mut read = 0;
        for round in 0..2000 {
            for style in Style::all() {
                let mut bytes = style.table(TEXT, &FUNCTIONS, END);
                seeded.damage(&mut bytes);
                if round % 4 == 0 {
                    bytes.truncate(seeded.below(bytes.len()));
                }
                read += survives(bytes);
            }
        }
        // Not all damage may be caught at the door, or the names behind it go untested.
        assert!(read > 2000, "{read} of 32,000");
    }
}
