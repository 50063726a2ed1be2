//! `struct stack_record` of the BPF side.

use profile::model::StackEnd;

/// `struct stack_record` up to its addresses.
const HEADER_BYTES: usize = 24;
/// `enum stack_kind`.
pub(super) mod kind {
    pub(crate) const USER: u8 = 1;
    pub(crate) const KERNEL: u8 = 2;
    pub(crate) const WAKER: u8 = 3;
    pub(crate) const ADDRESS: u8 = 4;
}

/// What the ring holds of a new stack, or of a waker.
pub(super) struct Record {
    pub(super) id: u64,
    pub(super) time_ns: u64,
    pub(super) tgid: u32,
    pub(super) kind: u8,
    pub(super) end: u8,
    pub(super) addresses: Vec<u64>,
    /// Python functions of a user stack, if its thread runs any.
    pub(super) python: Option<PythonStack>,
}

/// Functions of Python that a thread is in.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct PythonStack {
    /// Innermost first.
    pub(super) frames: Vec<PythonFrame>,
    pub(super) end: StackEnd,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PythonFrame {
    /// Address of its code object.
    pub(super) code: u64,
    /// The instruction that it is at, as the version counts them.
    pub(super) instruction: u32,
    /// By which the code object is known again: 24 bits.
    pub(super) checksum: u32,
    /// C code called it.
    pub(super) is_entry: bool,
}

impl PythonFrame {
    /// Two words of the record.
    fn of([code, position]: [u64; 2]) -> Self {
        let half = |word: u64| u32::try_from(word & 0xffff_ffff).expect("32 bits");
        Self {
            code,
            instruction: half(position),
            checksum: half(position >> 40),
            is_entry: position >> 32 & 1 == 1,
        }
    }
}

impl PythonStack {
    /// Words behind the addresses; `None`: there are none, or they are torn.
    fn of(words: &[u64]) -> Option<Self> {
        let (told, words) = words.split_first()?;
        let (frames, torn) = words.as_chunks();
        let count = usize::try_from(told & 0xffff).expect("16 bits");
        (torn.is_empty() && frames.len() == count).then(|| Self {
            frames: frames.iter().copied().map(PythonFrame::of).collect(),
            end: match told >> 16 {
                0 => StackEnd::Root,
                1 => StackEnd::Depth,
                _ => StackEnd::Unreadable,
            },
        })
    }
}

/// `enum stack_end` of the BPF side.
pub(super) fn end_of(code: u8) -> StackEnd {
    match code {
        0 => StackEnd::Root,
        1 => StackEnd::Depth,
        2 => StackEnd::NoTable,
        3 => StackEnd::Unreadable,
        _ => StackEnd::Unsupported,
    }
}

impl Record {
    /// `None`: torn.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let word = |at: usize| Some(u64::from_ne_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let depth = u16::from_ne_bytes(header.get(20..22)?.try_into().ok()?).into();
        let mut addresses: Vec<u64> = words(rest).collect();
        let behind = (depth <= addresses.len()).then(|| addresses.split_off(depth))?;
        Some(Self {
            id: word(0)?,
            time_ns: word(8)?,
            tgid: u32::from_ne_bytes(header.get(16..20)?.try_into().ok()?),
            kind: *header.get(22)?,
            end: *header.get(23)?,
            addresses,
            python: PythonStack::of(&behind),
        })
    }
}

/// Native-endian 64-bit words of a byte string; a torn end is left out.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("chunks of 8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_bpf_lays_it_out() {
        let mut bytes = Vec::new();
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(99_u64.to_ne_bytes());
        bytes.extend(1234_u32.to_ne_bytes());
        bytes.extend(2_u16.to_ne_bytes());
        bytes.extend([kind::USER, 3]);
        bytes.extend(0x10_u64.to_ne_bytes());
        bytes.extend(0x20_u64.to_ne_bytes());
        let record = Record::parse(&bytes).expect("a whole record");
        assert_eq!(
            (record.id, record.time_ns, record.tgid, record.kind),
            (7, 99, 1234, kind::USER)
        );
        assert_eq!(end_of(record.end), StackEnd::Unreadable);
        assert_eq!(
            (&record.addresses[..], record.python),
            (&[0x10, 0x20][..], None)
        );
        assert!(Record::parse(&bytes[..bytes.len() - 1]).is_none(), "torn");
        assert!(Record::parse(&bytes[..10]).is_none(), "no header");
        let functions = [
            2 | 1 << 16,
            0x70,
            0xabcd_ef00_0000_0012,
            0x80,
            0x1_0000_0034_u64,
        ];
        for word in functions {
            bytes.extend(word.to_ne_bytes());
        }
        let record = Record::parse(&bytes).expect("a whole record");
        let function = |code, instruction, checksum, is_entry| PythonFrame {
            code,
            instruction,
            checksum,
            is_entry,
        };
        let expected = PythonStack {
            frames: vec![
                function(0x70, 0x12, 0xab_cdef, false),
                function(0x80, 0x34, 0, true),
            ],
            end: StackEnd::Depth,
        };
        assert_eq!((record.addresses.len(), record.python), (2, Some(expected)));
        let torn = Record::parse(&bytes[..bytes.len() - 8]).expect("the addresses are whole");
        assert_eq!(torn.python, None);
    }
}
