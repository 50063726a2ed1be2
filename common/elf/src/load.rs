//! Segments of a file that are mapped.

use object::elf::PF_X;
use object::read::elf::ProgramHeader;

/// Bytes of a page of this machine's memory, to which the loader rounds segments: 4, 16 or 64 KiB.
pub fn page() -> u64 {
    rustix::param::page_size() as u64
}

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
    /// True if it may hold code.
    pub fn is_executable(&self) -> bool {
        self.flags & PF_X.0 != 0
    }

    /// True if a mapping of this segment may start at this file offset; the loader maps whole pages.
    pub fn holds(&self, offset: u64) -> bool {
        let end = self.offset.saturating_add(self.file_size);
        let page = page();
        (self.offset & !(page - 1)..end.div_ceil(page).saturating_mul(page)).contains(&offset)
    }

    /// The number to add to addresses of the file if the byte at `offset` of it is mapped at `start`.
    pub fn bias(&self, start: u64, offset: u64) -> u64 {
        start.wrapping_sub(self.address.wrapping_add(offset.wrapping_sub(self.offset)))
    }

    /// Bytes from the segment's first to this address, if the file has a byte for it.
    pub fn inside(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.address)?;
        (inside < self.file_size).then_some(inside)
    }

    /// A segment out of its header.
    pub fn of<P: ProgramHeader>(segment: &P, endian: P::Endian) -> Self {
        Self {
            offset: segment.p_offset(endian).into(),
            address: segment.p_vaddr(endian).into(),
            file_size: segment.p_filesz(endian).into(),
            memory_size: segment.p_memsz(endian).into(),
            flags: segment.p_flags(endian).0,
        }
    }
}
