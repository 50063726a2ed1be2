//! From one entry of a section to the next, before gimli knows what is in them: one that it cannot parse must not hide
//! those behind it.

/// What a section holds. Of two that describe the same address the earlier kind counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    EhFrame,
    DebugFrame,
    /// Go's own table, where .debug_frame was stripped.
    Go,
    /// Code without a description, which is always the same.
    Plt,
    /// A function without a description whose code leaves the caller's frame alone.
    Leaf,
}

/// The start of an entry.
pub(crate) struct Header {
    pub(crate) is_fde: bool,
    /// Offset of the next entry.
    pub(crate) end: usize,
}

impl Header {
    /// `None` at the end of the section, at a terminator, and at an entry that is cut off.
    pub(crate) fn read(bytes: &[u8], at: usize, kind: Kind) -> Option<Self> {
        let short = u32_at(bytes, at)?;
        let (body, length, wide) = match short {
            0 if kind == Kind::EhFrame => return None,
            // An assembler's mistake (NASM before 2.15), known to readers of .debug_frame.
            0 => {
                return Some(Self {
                    is_fde: false,
                    end: at + 4,
                });
            }
            u32::MAX => {
                let length = bytes.get(at.checked_add(4)?..)?.first_chunk()?;
                (at + 12, u64::from_le_bytes(*length), true)
            }
            short => (at + 4, short.into(), false),
        };
        let end = body.checked_add(usize::try_from(length).ok()?)?;
        if end > bytes.len() {
            return None;
        }
        let id = u32_at(&bytes[..end], body);
        let is_fde = match kind {
            Kind::EhFrame => id.is_some_and(|id| id != 0),
            Kind::DebugFrame if wide => u32_at(&bytes[..end], body + 4)
                .is_some_and(|high| (id, high) != (Some(u32::MAX), u32::MAX)),
            Kind::DebugFrame => id.is_some_and(|id| id != u32::MAX),
            Kind::Go | Kind::Plt | Kind::Leaf => false,
        };
        Some(Self { is_fde, end })
    }
}

/// How many of the bytes are entries.
pub(crate) fn used(bytes: &[u8], kind: Kind) -> usize {
    let mut end = 0;
    while let Some(header) = Header::read(bytes, end, kind) {
        end = header.end;
    }
    end
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
