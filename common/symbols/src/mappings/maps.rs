//! Reads `/proc/PID/maps`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::{FileKey, Mapping, backing_of};

/// No real process comes near it; vm.max_map_count is 65530 by default, a line about 100 bytes.
const MAX_BYTES: u64 = 16 << 20;
const MAX_MAPPINGS: usize = 65_536;
/// Exited leaders with live threads are rare; exited threads before the first live one are rarer.
const MAX_THREADS: usize = 16;

/// The executable mappings of a process; none for a kernel thread and for a zombie.
pub(crate) fn read(tgid: u32) -> io::Result<Vec<Mapping>> {
    read_file(Path::new(&format!("/proc/{tgid}/maps")))
}

/// All mappings of a process, data too, and whether writing to them is seen by whoever else has them mapped.
pub(crate) fn all(tgid: u32) -> io::Result<Vec<(Mapping, bool)>> {
    let bytes = read_bytes(Path::new(&format!("/proc/{tgid}/maps")))?;
    let lines = bytes.split(|&b| b == b'\n');
    let mappings = lines.filter_map(parse_mapping);
    let shared = mappings.map(|(mapping, perms)| (mapping, perms[3] == b's'));
    Ok(shared.take(MAX_MAPPINGS).collect())
}

/// Like [`read`], also for a process whose first thread has exited before the others.
pub(super) fn read_any_thread(tgid: u32) -> io::Result<Vec<Mapping>> {
    let mappings = read(tgid)?;
    if !mappings.is_empty() {
        return Ok(mappings);
    }
    let threads = fs::read_dir(format!("/proc/{tgid}/task"))?
        .take(MAX_THREADS)
        .flatten();
    let mut found = threads.filter_map(|thread| read_file(&thread.path().join("maps")).ok());
    found
        .find(|mappings| !mappings.is_empty())
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn read_file(path: &Path) -> io::Result<Vec<Mapping>> {
    Ok(parse(&read_bytes(path)?))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16 << 10);
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses what it can and skips lines that are no mapping (torn, truncated at the byte limit).
pub(super) fn parse(bytes: &[u8]) -> Vec<Mapping> {
    bytes
        .split(|&b| b == b'\n')
        .filter_map(parse_line)
        .take(MAX_MAPPINGS)
        .collect()
}

/// `None` for what is not executable.
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (mapping, perms) = parse_mapping(line)?;
    (perms[2] == b'x').then_some(mapping)
}

/// `START-END PERMS OFFSET MAJ:MIN INODE   PATH`, and PERMS.
fn parse_mapping(line: &[u8]) -> Option<(Mapping, [u8; 4])> {
    let (range, rest) = word(line)?;
    let (perms, rest) = word(rest)?;
    let (offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, path) = word(rest)?;
    let (start, end) = halves(range, b'-')?;
    let (major, minor) = halves(device, b':')?;
    let (start, end) = (hex(start)?, hex(end)?);
    if start >= end {
        return None;
    }
    let key = FileKey {
        major: u32::try_from(hex(major)?).ok()?,
        minor: u32::try_from(hex(minor)?).ok()?,
        inode: decimal(inode)?,
    };
    let path = unescape(path);
    let mapping = Mapping {
        start,
        end,
        offset: hex(offset)?,
        backing: backing_of(&path, key),
        path: path.into(),
        from_ns: 0,
        until_ns: u64::MAX,
    };
    Some((mapping, perms.try_into().ok()?))
}

fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| b == b' ').unwrap_or(bytes.len());
    let rest = &bytes[end..];
    let skip = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
    (end > 0).then_some((&bytes[..end], &rest[skip..]))
}

fn halves(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&b| b == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn hex(bytes: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(bytes).ok()?, 16).ok()
}

fn decimal(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The kernel escapes nothing but the newline, as `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = tail;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Backing;
    use super::*;

    const SAMPLE: &[u8] = b"\
55d0c8a00000-55d0c8a02000 r--p 00000000 fe:01 131 /usr/bin/cat
55d0c8a02000-55d0c8a07000 r-xp 00002000 fe:01 131                        /usr/bin/cat (deleted)
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000001000-7f0000002000 r-xp 00001000 00:05 77 /tmp/a b\\012c\xff
7f0000002000-7f0000003000 r-xs 00000000 00:01 5 /memfd:doublemapper (deleted)
7f0000003000-7f0000004000 r-xp 00000000 00:00 0 [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
7f0000005000-7f0000006000 r-x";

    #[test]
    fn lines_of_every_kind() {
        let maps = parse(SAMPLE);
        assert_eq!(maps.len(), 6);
        assert_eq!(
            (maps[0].start, maps[0].end, maps[0].offset),
            (0x55d0_c8a0_2000, 0x55d0_c8a0_7000, 0x2000)
        );
        assert_eq!(
            maps[0].backing,
            Backing::File(FileKey {
                major: 0xfe,
                minor: 1,
                inode: 131
            })
        );
        assert_eq!(&*maps[0].path, b"/usr/bin/cat (deleted)");
        assert_eq!(maps[1].backing, Backing::Anonymous);
        assert_eq!(&*maps[2].path, b"/tmp/a b\nc\xff");
        assert!(matches!(maps[3].backing, Backing::File(_)));
        assert_eq!(maps[4].backing, Backing::Vdso);
        assert_eq!(maps[5].backing, Backing::Anonymous);
        assert_eq!(maps[0].file_offset(0x55d0_c8a0_2010), 0x2010);
    }

    #[test]
    fn every_prefix_and_flipped_byte_is_survived() {
        for end in 0..SAMPLE.len() {
            parse(&SAMPLE[..end]);
            for byte in [0, b' ', b'\n', b'-', b':', 0xff] {
                let mut bytes = SAMPLE.to_vec();
                bytes[end] = byte;
                parse(&bytes);
            }
        }
    }

    #[test]
    fn own_maps_cover_own_code() {
        let here = own_maps_cover_own_code as *const () as u64;
        let maps = read(std::process::id()).unwrap();
        assert_eq!(maps.iter().filter(|m| m.covers(here)).count(), 1);
    }
}
