//! The section table of an ELF file nobody vouches for: small, bounded reads, no mapping.

use std::fs::File;
use std::os::unix::fs::FileExt;

const HEADER_BYTES: usize = 64;
/// Names of all sections together.
const MAX_NAMES_BYTES: u64 = 1 << 20;
/// Uncompressed size of all compressed sections together.
const MAX_UNPACKED_BYTES: u64 = 2 << 30;
const SHF_COMPRESSED: u64 = 0x800;
const SHT_NOBITS: u32 = 8;
const NT_GNU_BUILD_ID: u32 = 3;

/// Where the sections of a little-endian 64-bit ELF file lie.
#[derive(Debug)]
pub(crate) struct Sections<'file> {
    file: &'file File,
    sections: Vec<Section>,
}

#[derive(Debug)]
struct Section {
    name: Vec<u8>,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
}

impl<'file> Sections<'file> {
    /// Reads the table; `None` for anything but an ordinary one.
    pub(crate) fn read(file: &'file File) -> Option<Self> {
        let header = bytes(file, 0, HEADER_BYTES)?;
        if !header.starts_with(b"\x7fELF\x02\x01") || u16_at(&header, 58)? != 64 {
            return None;
        }
        // A count of 0 means that the real one is elsewhere and has no 16-bit bound.
        let count = usize::from(u16_at(&header, 60)?);
        if count == 0 {
            return None;
        }
        let table = bytes(file, u64_at(&header, 40)?, count * HEADER_BYTES)?;
        let entries: Vec<&[u8]> = table.chunks_exact(HEADER_BYTES).collect();
        let names = entries.get(usize::from(u16_at(&header, 62)?))?;
        let names_size = u64_at(names, 32)?;
        if names_size > MAX_NAMES_BYTES {
            return None;
        }
        let names = bytes(file, u64_at(names, 24)?, usize::try_from(names_size).ok()?)?;
        let sections = entries
            .into_iter()
            .map(|entry| Section::parse(entry, &names))
            .collect::<Option<_>>()?;
        Some(Self { file, sections })
    }

    /// Whether there is a section of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Contents of a section, if it is not larger than `limit`.
    pub(crate) fn data(&self, name: &str, limit: u64) -> Option<Vec<u8>> {
        let section = self.find(name)?;
        if section.size > limit || section.kind == SHT_NOBITS {
            return None;
        }
        bytes(
            self.file,
            section.offset,
            usize::try_from(section.size).ok()?,
        )
    }

    /// GNU build ID.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        let note = self.data(".note.gnu.build-id", 4096)?;
        let name_size = usize::try_from(u32_at(&note, 0)?).ok()?;
        let size = usize::try_from(u32_at(&note, 4)?).ok()?;
        if name_size != 4 || u32_at(&note, 8)? != NT_GNU_BUILD_ID || note.get(12..16)? != b"GNU\0" {
            return None;
        }
        Some(note.get(16..16_usize.checked_add(size)?)?.to_vec())
    }

    /// Name and CRC32 of the separate debug file, from `.gnu_debuglink`.
    pub(crate) fn debug_link(&self) -> Option<(Vec<u8>, u32)> {
        let link = self.data(".gnu_debuglink", 4096)?;
        let end = link.iter().position(|byte| *byte == 0)?;
        let checksum = u32_at(&link, (end + 4) & !3)?;
        Some((link[..end].to_vec(), checksum))
    }

    /// Whether reading debug information would unpack more than any real file holds.
    pub(crate) fn unpacks_too_large(&self) -> bool {
        let mut total = 0_u64;
        for section in &self.sections {
            if section.flags & SHF_COMPRESSED != 0 {
                let size = bytes(self.file, section.offset, 24).and_then(|head| u64_at(&head, 8));
                total = total.saturating_add(size.unwrap_or(u64::MAX));
            }
        }
        total > MAX_UNPACKED_BYTES
    }

    fn find(&self, name: &str) -> Option<&Section> {
        self.sections
            .iter()
            .find(|section| section.name == name.as_bytes())
    }
}

impl Section {
    fn parse(entry: &[u8], names: &[u8]) -> Option<Self> {
        let name = names.get(usize::try_from(u32_at(entry, 0)?).ok()?..)?;
        // Longer names are none of those asked for; many long ones overlapping would cost much memory.
        let name = name.get(..name.len().min(32))?;
        let end = name.iter().position(|byte| *byte == 0);
        Some(Self {
            name: name[..end.unwrap_or(name.len())].to_vec(),
            kind: u32_at(entry, 4)?,
            flags: u64_at(entry, 8)?,
            offset: u64_at(entry, 24)?,
            size: u64_at(entry, 32)?,
        })
    }
}

fn bytes(file: &File, offset: u64, size: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; size];
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_our_own_table() {
        let file = File::open("/proc/self/exe").unwrap();
        let sections = Sections::read(&file).unwrap();
        assert!(sections.has(".text"));
        assert!(!sections.has(".texts"));
        assert!(!sections.unpacks_too_large());
    }

    #[test]
    fn any_header_byte_may_be_anything() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for at in 0..HEADER_BYTES {
            for value in [0, 1, 0x7f, 0xff] {
                let mut file = tempfile::tempfile().unwrap();
                let mut head = whole[..4096].to_vec();
                head[at] = value;
                file.write_all(&head).unwrap();
                if let Some(sections) = Sections::read(&file) {
                    sections.build_id();
                    sections.debug_link();
                }
            }
        }
    }
}
