//! Parses perf maps: `START SIZE NAME` lines in hexadecimal, written by JIT compilers while they run.

use std::collections::BTreeMap;

/// Entries taken of one map: ten times the largest seen, about 300 MiB.
const MAX_ENTRIES: usize = 4 << 20;
/// What one takes in a B-tree whose nodes may be half empty, at most.
const ENTRY_BYTES: usize = 72;

/// A line may be as long as the file.
const MAX_NAME: usize = 16 << 10;

/// Ranges and names; where entries overlap, the later one in the file is the newer code.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    bytes: Vec<u8>,
    entries: BTreeMap<u64, Entry>,
    /// There are more than were taken.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    end: u64,
    /// Byte range of the name; files are below 4 GiB.
    name: (u32, u32),
}

impl PerfMap {
    /// Takes every line that is whole, the last one may still be being written, as long as it all has room in `most` bytes.
    pub(super) fn parse(bytes: Vec<u8>, most: u64) -> Self {
        let mut map = Self::default();
        let room = usize::try_from(most).unwrap_or(usize::MAX);
        let most_entries = MAX_ENTRIES.min(room.saturating_sub(bytes.len()) / ENTRY_BYTES);
        let mut at = 0;
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            // A line may split an entry: two more.
            if map.entries.len() + 2 > most_entries {
                map.is_cut = true;
                break;
            }
            if let Some((start, end, name)) = parse_line(line) {
                let offset = at + line.len() - 1 - name.len();
                if let (Ok(from), Ok(to)) =
                    (u32::try_from(offset), u32::try_from(offset + name.len()))
                {
                    map.insert(
                        start,
                        Entry {
                            end,
                            name: (from, to),
                        },
                    );
                }
            }
            at += line.len();
        }
        map.bytes = bytes;
        map
    }

    /// Bytes held, of text and of what points into it.
    pub(super) fn len(&self) -> u64 {
        (self.bytes.len() + self.entries.len() * ENTRY_BYTES) as u64
    }

    /// Whether it had more lines than room.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Name of the code at `address`.
    pub(super) fn find(&self, address: u64) -> Option<String> {
        let (_, entry) = self.entries.range(..=address).next_back()?;
        let name = &self.bytes[entry.name.0 as usize..entry.name.1 as usize];
        let name = &name[..name.len().min(MAX_NAME)];
        (address < entry.end).then(|| String::from_utf8_lossy(name).into_owned())
    }

    fn insert(&mut self, start: u64, entry: Entry) {
        if let Some((_, before)) = self.entries.range_mut(..start).next_back() {
            let old = *before;
            if old.end > start {
                before.end = start;
            }
            if old.end > entry.end {
                self.entries.insert(entry.end, old);
            }
        }
        while let Some((&at, &old)) = self.entries.range(start..entry.end).next() {
            self.entries.remove(&at);
            if old.end > entry.end {
                self.entries.insert(entry.end, old);
            }
        }
        self.entries.insert(start, entry);
    }
}

/// The name reaches up to the newline and may have spaces.
fn parse_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let line = line.strip_suffix(b"\n")?;
    let (start, rest) = number(line)?;
    let (size, name) = number(rest)?;
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then_some((start, end, name))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let space = bytes.iter().position(|&b| b == b' ')?;
    let digits = bytes[..space]
        .strip_prefix(b"0x")
        .unwrap_or(&bytes[..space]);
    // from_str_radix would take a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let value = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((value, &bytes[space + 1..]))
}

#[cfg(test)]
mod tests {
    use super::super::damage::Seeded;
    use super::{ENTRY_BYTES, PerfMap};

    fn name(text: &[u8], address: u64) -> Option<String> {
        PerfMap::parse(text.to_vec(), u64::MAX).find(address)
    }

    #[test]
    fn what_has_no_room_is_not_taken() {
        let text: String = (0..10_000)
            .map(|at| format!("{:x} 1 a\n", 0x1000 + 2 * at))
            .collect();
        let most = (text.len() + 100 * ENTRY_BYTES) as u64;
        let map = PerfMap::parse(text.clone().into_bytes(), most);
        assert!(map.is_cut() && map.len() <= most, "{}", map.len());
        assert_eq!(map.find(0x1000).as_deref(), Some("a"));
        assert!(!PerfMap::parse(text.into_bytes(), u64::MAX).is_cut());
    }

    #[test]
    fn entries() {
        let text =
            b"1000 10 LazyCompile:~a b /x y.js:1\n0x2000 0x20 py::f:/a.py\n3000 5 \xff\xfe\n";
        assert_eq!(name(text, 0x1000).unwrap(), "LazyCompile:~a b /x y.js:1");
        assert_eq!(name(text, 0x100f).unwrap(), "LazyCompile:~a b /x y.js:1");
        assert_eq!(name(text, 0x1010), None);
        assert_eq!(name(text, 0x0fff), None);
        assert_eq!(name(text, 0x201f).unwrap(), "py::f:/a.py");
        assert_eq!(name(text, 0x3000).unwrap(), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_torn_last_line_is_not_there_yet() {
        assert_eq!(name(b"1000 10 whole\n2000 10 ha", 0x2000), None);
        assert_eq!(name(b"1000 10 whole\n2000 10 ha", 0x1000).unwrap(), "whole");
    }

    #[test]
    fn the_later_of_two_overlapping_entries_wins() {
        let text = b"1000 100 old\n1040 20 new\n2000 10 a\n2008 10 b\n3008 10 c\n3000 10 d\n4000 8 e\n4000 4 f\n";
        for (address, expected) in [
            (0x1000, "old"),
            (0x103f, "old"),
            (0x1040, "new"),
            (0x105f, "new"),
            (0x1060, "old"),
            (0x10ff, "old"),
            (0x2007, "a"),
            (0x2008, "b"),
            (0x2017, "b"),
            (0x3000, "d"),
            (0x300f, "d"),
            (0x3010, "c"),
            (0x3017, "c"),
            (0x4003, "f"),
            (0x4004, "e"),
        ] {
            assert_eq!(
                name(text, address).as_deref(),
                Some(expected),
                "{address:x}"
            );
        }
    }

    #[test]
    fn hostile_bytes() {
        for text in [
            &b"ffffffffffffffff 10 wraps\n"[..],
            b"1000 0 empty\n",
            b"1000 10 \n",
            b"zz 10 x\n",
            b"+1 +2 x\n",
            b"\n\n \n",
            b"1000\n",
            b"11111111111111111 1 toolong\n",
            b"1000 -1 x\n",
        ] {
            assert!(
                PerfMap::parse(text.to_vec(), u64::MAX).entries.is_empty(),
                "{text:?}"
            );
        }
        let mut seed = 1u64;
        let noise: Vec<u8> = (0..100_000)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b"0123456789abcdefx \n\xff"[(seed >> 40) as usize % 20]
            })
            .collect();
        let map = PerfMap::parse(noise, u64::MAX);
        let ends: Vec<_> = map.entries.iter().map(|(s, e)| (*s, e.end)).collect();
        assert!(
            ends.windows(2).all(|w| w[0].1 <= w[1].0),
            "no two entries overlap"
        );
    }
    /// What holds for every map, whatever its bytes: entries in order, none empty, names inside the text.
    fn check(text: &[u8]) {
        let map = PerfMap::parse(text.to_vec(), u64::MAX);
        assert!(map.entries.len() <= 2 * text.len());
        let mut last = 0;
        for (&start, entry) in &map.entries {
            assert!(last <= start && start < entry.end, "{text:?}");
            last = entry.end;
            for address in [start, entry.end - 1] {
                assert!(map.find(address).is_some_and(|n| !n.is_empty()), "{text:?}");
            }
        }
        for address in [0, last, u64::MAX] {
            map.find(address);
        }
    }

    #[test]
    fn damaged_and_truncated_maps() {
        let whole = b"7f0010 10 LazyCompile:~a b /x y.js:1\n0x2000 0x20 py::f:/a.py\n7f0018 100 Interpreter\n\
            ffffffffffffff00 ff last\n3000 5 \xc3\xa9\n7f0000 8 stub\n";
        for length in 0..=whole.len() {
            check(&whole[..length]);
        }
        let mut seeded = Seeded(3);
        for round in 0..20_000 {
            let mut text = whole.to_vec();
            seeded.damage(&mut text);
            if round % 4 == 0 {
                text.truncate(seeded.below(text.len()));
            }
            check(&text);
        }
    }
}
