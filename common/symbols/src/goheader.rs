//! The head of Go's function table: which layout it has and where its parts are.

/// Functions of one program; kube-state-metrics has 70,000.
const MAX_FUNCTIONS: u64 = 1 << 20;

/// A program as it will lie in memory, at its ELF addresses.
pub(super) trait Image {
    /// Reads the file's bytes for `address`, fewer than asked for where its segment ends.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// Fills `buffer`, with pointers as the dynamic linker will set them: in the file of a position-independent program
    /// they may be zero.
    fn read_relocated(&self, address: u64, buffer: &mut [u8]) -> Option<()>;

    /// Takes `bytes` of what may be looked through; false when that much is no longer left.
    fn may_search(&self, _bytes: usize) -> bool {
        true
    }

    /// Reads all of `buffer`.
    fn fill(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        (self.read(address, buffer) == buffer.len()).then_some(())
    }
}

/// How a table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Go 1.2: everything is relative to the table, code addresses are pointers.
    Pointers,
    /// Go 1.16: the header names the tables' places.
    Split,
    /// Go 1.18 and 1.20, which differ in nothing read here: code addresses are 32-bit and relative to the text's start.
    Relative,
}

/// The first eight bytes.
#[derive(Clone, Copy, Debug)]
struct Start {
    layout: Layout,
    big_endian: bool,
    /// Bytes in a pointer.
    word: usize,
}

impl Start {
    /// Magic number, two zeros, instruction size, pointer size.
    fn parse(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, 0, 0, 1 | 2 | 4, word @ (4 | 8)] = bytes else {
            return None;
        };
        let magic = [a, b, c, d];
        let layout = |magic| match magic {
            0xffff_fffb => Some(Layout::Pointers),
            0xffff_fffa => Some(Layout::Split),
            0xffff_fff0 | 0xffff_fff1 => Some(Layout::Relative),
            _ => None,
        };
        let little = layout(u32::from_le_bytes(magic)).map(|l| (l, false));
        let (layout, big_endian) =
            little.or_else(|| layout(u32::from_be_bytes(magic)).map(|l| (l, true)))?;
        Some(Self {
            layout,
            big_endian,
            word: word.into(),
        })
    }

    /// An unsigned number of up to eight bytes.
    fn number(self, bytes: &[u8]) -> u64 {
        let add = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
        if self.big_endian {
            bytes.iter().fold(0, add)
        } else {
            bytes.iter().rev().fold(0, add)
        }
    }
}

/// Where the parts of a table are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    start: Start,
    /// Address of the table.
    pub(super) address: u64,
    /// How many there are.
    pub(super) functions: u64,
    /// Address of the names.
    pub(super) names: u64,
    /// Address of the list of functions.
    pub(super) functab: u64,
    /// What the offsets in `functab` count from.
    pub(super) data: u64,
    /// Where the address of the text's start is, for layouts that count from there. Zero in the file since Go 1.26.
    pub(super) text_at: Option<u64>,
}

impl Header {
    /// Whether a table may start with these bytes.
    pub(super) fn may_start(bytes: [u8; 8]) -> bool {
        Start::parse(bytes).is_some()
    }

    pub(super) fn read(image: &impl Image, address: u64) -> Option<Self> {
        let mut bytes = [0; 8];
        image.fill(address, &mut bytes)?;
        let start = Start::parse(bytes)?;
        let word_at = |n: u64| address.checked_add(8 + n * start.word as u64);
        let place = |n| address.checked_add(pointer(image, start, word_at(n)?)?);
        let functions = pointer(image, start, word_at(0)?)?;
        let (names, functab, data, text_at) = match start.layout {
            Layout::Pointers => (address, word_at(1)?, address, None),
            Layout::Split => (place(2)?, place(6)?, place(6)?, None),
            Layout::Relative => (place(3)?, place(7)?, place(7)?, Some(word_at(2)?)),
        };
        (1..=MAX_FUNCTIONS).contains(&functions).then_some(Self {
            start,
            address,
            functions,
            names,
            functab,
            data,
            text_at,
        })
    }

    /// Bytes in a pointer of this program.
    pub(super) fn word(&self) -> usize {
        self.start.word
    }

    /// A number in this program's byte order.
    pub(super) fn number(&self, bytes: &[u8]) -> u64 {
        self.start.number(bytes)
    }

    /// The pointer at `address`, as it will be when the program runs.
    pub(super) fn pointer(&self, image: &impl Image, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.start.word];
        image.read_relocated(address, bytes)?;
        Some(self.start.number(bytes))
    }

    /// Size of an address in the list of functions and at the head of each function's data.
    pub(super) fn width(&self) -> usize {
        match self.start.layout {
            Layout::Relative => 4,
            Layout::Pointers | Layout::Split => self.start.word,
        }
    }
}

fn pointer(image: &impl Image, start: Start, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let bytes = &mut bytes[..start.word];
    image.fill(address, bytes)?;
    Some(start.number(bytes))
}
