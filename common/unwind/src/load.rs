//! Segments of a file that are mapped.

use object::LittleEndian as LE;
use object::elf::{PF_X, ProgramHeader64};
use object::read::elf::ProgramHeader;

/// Bytes of a page of memory; what the loader rounds segments to. Architecture: x86-64.
pub const PAGE: u64 = 4096;

/// A PT_LOAD segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// `p_offset`
    pub offset: u64,
    /// `p_vaddr`
    pub address: u64,
    /// `p_filesz`
    pub file_size: u64,
    /// `p_memsz`
    pub memory_size: u64,
    /// `p_flags`
    pub flags: u32,
}

impl Load {
    /// Whether it may hold code.
    pub fn is_executable(&self) -> bool {
        self.flags & PF_X.0 != 0
    }

    /// Whether a mapping of this segment may start at this file offset; the loader maps whole pages.
    pub(crate) fn holds(&self, offset: u64) -> bool {
        let end = self.offset.saturating_add(self.file_size);
        (self.offset & !(PAGE - 1)..end.div_ceil(PAGE).saturating_mul(PAGE)).contains(&offset)
    }
}

impl From<&ProgramHeader64<LE>> for Load {
    fn from(segment: &ProgramHeader64<LE>) -> Self {
        Self {
            offset: segment.p_offset(LE),
            address: segment.p_vaddr(LE),
            file_size: segment.p_filesz(LE),
            memory_size: segment.p_memsz(LE),
            flags: segment.p_flags(LE).0,
        }
    }
}
