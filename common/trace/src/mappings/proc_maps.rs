//! `/proc/PID/maps`: executable mappings only.

use std::fs::File;
use std::io::Read;

use super::{Kind, Mapping};

/// More than any sane process has; the rest is not read.
const MAX_BYTES: u64 = 16 << 20;
const MAX_MAPPINGS: usize = 65_536;

/// Reads what a process has mapped now; `None` when it is gone or may not be asked.
pub(super) fn read(tgid: u32) -> Option<Vec<Mapping>> {
    let mut text = Vec::new();
    File::open(format!("/proc/{tgid}/maps"))
        .ok()?
        .take(MAX_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    Some(parse(&text))
}

/// Parses lines of `START-END PERM OFFSET MAJ:MIN INODE   PATH`; others are skipped.
pub(super) fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .take(MAX_MAPPINGS)
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let permissions = text()?;
    let file_offset = u64::from_str_radix(text()?, 16).ok()?;
    let _device = text()?;
    let inode = text()?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    let (start, end) = (
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    (permissions.as_bytes().get(2) == Some(&b'x') && start < end).then(|| Mapping {
        start,
        end,
        file_offset,
        since_ns: 0,
        kind: Kind::of(path, inode),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_lines_are_understood() {
        let maps = parse(
            b"55d0c0000000-55d0c0001000 r--p 00000000 fe:00 42                         /usr/bin/a\n\
              55d0c0001000-55d0c0002000 r-xp 00001000 fe:00 42                         /usr/bin/a b (deleted)\n\
              7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
              7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]\n\
              7f0000002000-7f0000003000 r-xp 00000000 00:01 7                          /memfd:jit (deleted)\n",
        );
        assert_eq!(maps.len(), 4);
        assert_eq!(
            (maps[0].start, maps[0].end, maps[0].file_offset),
            (0x55d0_c000_1000, 0x55d0_c000_2000, 0x1000)
        );
        let Kind::File { path, inode } = &maps[0].kind else {
            panic!("{:?}", maps[0])
        };
        assert_eq!((&**path, *inode), (b"/usr/bin/a b".as_slice(), 42));
        assert_eq!(maps[1].kind, Kind::Anonymous);
        assert_eq!(maps[2].kind, Kind::Vdso);
        assert!(matches!(maps[3].kind, Kind::File { .. }));
    }

    #[test]
    fn rubbish_is_skipped() {
        assert!(parse(b"").is_empty());
        assert!(parse(b"1-0 r-xp 0 0:0 0 x\nzz r-xp\n1-2\n\xff\xfe\n-- -- --\n").is_empty());
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..100_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                b"0123456789abcdef- rwxp:/\n\xff"[(state >> 33) as usize % 26]
            })
            .collect();
        parse(&noise);
    }
}
