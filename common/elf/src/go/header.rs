//! The head of Go's function table: which layout it has and where its parts are.

/// Functions of one program; kube-state-metrics has 70,000.
const MAX_FUNCTIONS: u64 = 1 << 20;

/// A program as it will lie in memory, at its ELF addresses.
pub trait Image {
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

/// Layouts of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Go 1.2: everything is relative to the table, code addresses are pointers.
    Pointers,
    /// Go 1.16: the header names the tables' places.
    Split,
    /// Go 1.18 and 1.20: code addresses are 32-bit and relative to the text's start.
    Relative {
        /// Place of a function's flags in its data.
        flags: u64,
    },
}

/// The first eight bytes.
#[derive(Clone, Copy, Debug)]
struct Start {
    layout: Layout,
    big_endian: bool,
    /// Bytes in an instruction, at least.
    quantum: u8,
    /// Bytes in a pointer.
    word: usize,
}

impl Start {
    /// Magic number, two zeros, instruction size, pointer size.
    fn parse(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, 0, 0, quantum @ (1 | 2 | 4), word @ (4 | 8)] = bytes else {
            return None;
        };
        let magic = [a, b, c, d];
        let layout = |magic| match magic {
            0xffff_fffb => Some(Layout::Pointers),
            0xffff_fffa => Some(Layout::Split),
            0xffff_fff0 => Some(Layout::Relative { flags: 37 }),
            0xffff_fff1 => Some(Layout::Relative { flags: 41 }),
            _ => None,
        };
        let little = layout(u32::from_le_bytes(magic)).map(|l| (l, false));
        let (layout, big_endian) =
            little.or_else(|| layout(u32::from_be_bytes(magic)).map(|l| (l, true)))?;
        Some(Self {
            layout,
            big_endian,
            quantum,
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

/// Places of a table's parts.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    start: Start,
    /// Address of the table.
    pub address: u64,
    /// Number of functions.
    pub functions: u64,
    /// Address of the names.
    pub names: u64,
    /// Address of the list of functions.
    pub functab: u64,
    /// Address that the offsets in `functab` count from.
    pub data: u64,
    /// Address that the places of depths of the stack count from.
    pub pctab: u64,
    /// Place of the address of the text's start, for layouts that count from there. Zero in the file since Go 1.26.
    pub text_at: Option<u64>,
}

impl Header {
    /// True if a table may start with these bytes.
    pub(crate) fn may_start(bytes: [u8; 8]) -> bool {
        Start::parse(bytes).is_some()
    }

    /// Reads the table's head.
    pub fn read(image: &impl Image, address: u64) -> Option<Self> {
        let mut bytes = [0; 8];
        image.fill(address, &mut bytes)?;
        let start = Start::parse(bytes)?;
        let word_at = |n: u64| address.checked_add(8 + n * start.word as u64);
        let place = |n| address.checked_add(pointer(image, start, word_at(n)?)?);
        let functions = pointer(image, start, word_at(0)?)?;
        let (names, pctab, functab, data, text_at) = match start.layout {
            Layout::Pointers => (address, address, word_at(1)?, address, None),
            Layout::Split => (place(2)?, place(5)?, place(6)?, place(6)?, None),
            Layout::Relative { .. } => {
                let data = place(7)?;
                (place(3)?, place(6)?, data, data, Some(word_at(2)?))
            }
        };
        (1..=MAX_FUNCTIONS).contains(&functions).then_some(Self {
            start,
            address,
            functions,
            names,
            pctab,
            functab,
            data,
            text_at,
        })
    }

    /// The layout of the table.
    pub fn layout(&self) -> Layout {
        self.start.layout
    }

    /// Bytes of the shortest instruction, if the program is a little-endian one with 64-bit pointers: 1 on x86-64, 4 on aarch64.
    pub fn quantum_of_64_bits(&self) -> Option<u8> {
        let start = self.start;
        (!start.big_endian && start.word == 8).then_some(start.quantum)
    }

    /// Bytes in a pointer of this program.
    pub(super) fn word(&self) -> usize {
        self.start.word
    }

    /// A number in this program's byte order.
    pub fn number(&self, bytes: &[u8]) -> u64 {
        self.start.number(bytes)
    }

    /// The pointer at `address`, as it will be when the program runs.
    pub fn pointer(&self, image: &impl Image, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.start.word];
        image.read_relocated(address, bytes)?;
        Some(self.start.number(bytes))
    }

    /// Size of an address in the list of functions and at the head of each function's data.
    pub fn width(&self) -> usize {
        match self.start.layout {
            Layout::Relative { .. } => 4,
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
