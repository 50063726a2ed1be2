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
        let addresses: Vec<u64> = words(rest).take(depth).collect();
        (addresses.len() == depth).then_some(Self {
            id: word(0)?,
            time_ns: word(8)?,
            tgid: u32::from_ne_bytes(header.get(16..20)?.try_into().ok()?),
            kind: *header.get(22)?,
            end: *header.get(23)?,
            addresses,
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
        assert_eq!(record.addresses, [0x10, 0x20]);
        assert!(Record::parse(&bytes[..bytes.len() - 1]).is_none(), "torn");
        assert!(Record::parse(&bytes[..10]).is_none(), "no header");
    }
}
