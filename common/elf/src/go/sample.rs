//! Function tables to test with, as Go's linker would write them.

use super::header::Image;

/// Form of a table to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) magic: u32,
    pub(super) word: usize,
    pub(super) big_endian: bool,
}

/// Every layout in every kind of program.
pub(super) const STYLES: [u32; 4] = [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1];

/// 64-bit little-endian since Go 1.20.
pub(super) const NEWEST: Style = Style {
    magic: 0xffff_fff1,
    word: 8,
    big_endian: false,
};

impl Style {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        STYLES.into_iter().flat_map(|magic| {
            [(4, false), (4, true), (8, false), (8, true)].map(|(word, big_endian)| Self {
                magic,
                word,
                big_endian,
            })
        })
    }

    fn relative(self) -> bool {
        self.magic < 0xffff_fffa
    }

    pub(super) fn put(self, out: &mut Vec<u8>, value: u64, size: usize) {
        let bytes = value.to_le_bytes();
        if self.big_endian {
            out.extend(bytes[..size].iter().rev());
        } else {
            out.extend(&bytes[..size]);
        }
    }

    /// A table with these functions, given by start and name; `text` goes into the header, `end` ends the last one.
    pub(super) fn table(self, text: u64, functions: &[(u64, &[u8])], end: u64) -> Vec<u8> {
        let words = match self.magic {
            0xffff_fffb => 1,
            0xffff_fffa => 7,
            _ => 8,
        };
        let width = if self.relative() { 4 } else { self.word };
        let base = if self.relative() { text } else { 0 };
        let functab = 8 + words * self.word;
        let data = functab + (functions.len() * 2 + 1) * width;
        let names = data + functions.len() * (width + 4);
        let origin = if words == 1 { 0 } else { functab };
        let names_origin = if words == 1 { 0 } else { names };

        let mut out = Vec::new();
        self.put(&mut out, self.magic.into(), 4);
        out.extend([0, 0, 1, u8::try_from(self.word).unwrap()]);
        let (count, names_at, functab_at) = (functions.len() as u64, names as u64, functab as u64);
        let header: &[u64] = match words {
            1 => &[count],
            7 => &[count, 1, names_at, 0, 0, 0, functab_at],
            _ => &[count, 1, text, names_at, 0, 0, 0, functab_at],
        };
        header
            .iter()
            .for_each(|&word| self.put(&mut out, word, self.word));
        for (n, (start, _)) in functions.iter().enumerate() {
            self.put(&mut out, start - base, width);
            self.put(&mut out, (data + n * (width + 4) - origin) as u64, width);
        }
        self.put(&mut out, end - base, width);
        let mut name_at = names - names_origin;
        for (start, name) in functions {
            self.put(&mut out, start - base, width);
            self.put(&mut out, name_at as u64, 4);
            name_at += name.len() + 1;
        }
        for (_, name) in functions {
            out.extend(*name);
            out.push(0);
        }
        out
    }
}

/// Bytes at an address.
pub(super) struct Flat {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

impl Image for Flat {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let at = address
            .checked_sub(self.address)
            .and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.bytes.get(at..)).unwrap_or_default();
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        length
    }

    fn read_relocated(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.fill(address, buffer)
    }
}
