//! Address ranges of JIT code and their names: lines `START SIZE NAME` in hexadecimal.

use std::collections::BTreeMap;
use std::sync::Arc;

const MAX_RANGES: usize = 2_000_000;
const MAX_NAME_BYTES: usize = 4096;

/// Ranges that do not overlap.
#[derive(Debug, Default)]
pub(crate) struct JitTable(BTreeMap<u64, Range>);

#[derive(Clone, Debug)]
struct Range {
    /// First address after the range.
    end: u64,
    name: Arc<str>,
}

impl JitTable {
    /// Takes in whole lines; those that make no sense are skipped.
    pub(crate) fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            if self.0.len() >= MAX_RANGES {
                return;
            }
            if let Some((start, range)) = parse(line) {
                self.insert(start, range);
            }
        }
    }

    /// The name of the range that covers `address`.
    pub(crate) fn name(&self, address: u64) -> Option<Arc<str>> {
        let (_, range) = self.0.range(..=address).next_back()?;
        (address < range.end).then(|| Arc::clone(&range.name))
    }

    /// Memory is reused: what was written last holds, and what it covers goes.
    fn insert(&mut self, start: u64, range: Range) {
        if let Some((_, before)) = self.0.range_mut(..start).next_back()
            && before.end > start
        {
            let rest = before.clone();
            before.end = start;
            if rest.end > range.end {
                self.0.insert(range.end, rest);
            }
        }
        let covered: Vec<u64> = self.0.range(start..range.end).map(|(at, _)| *at).collect();
        for at in covered {
            if let Some(old) = self.0.remove(&at)
                && old.end > range.end
            {
                self.0.insert(range.end, old);
            }
        }
        self.0.insert(start, range);
    }
}

fn parse(line: &[u8]) -> Option<(u64, Range)> {
    let mut fields = line.splitn(3, |byte| *byte == b' ');
    let start = hexadecimal(fields.next()?)?;
    let size = hexadecimal(fields.next()?)?;
    let name = fields.next()?.trim_ascii();
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    let end = start.checked_add(size)?;
    if name.is_empty() || end == start {
        return None;
    }
    let name = String::from_utf8_lossy(name).into();
    Some((start, Range { end, name }))
}

fn hexadecimal(field: &[u8]) -> Option<u64> {
    let field = std::str::from_utf8(field).ok()?;
    let digits = field.strip_prefix("0x").unwrap_or(field);
    // The parser would accept a sign.
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &[u8]) -> JitTable {
        let mut table = JitTable::default();
        table.add(text);
        table
    }

    fn name(table: &JitTable, address: u64) -> String {
        table
            .name(address)
            .map_or_else(String::new, |name| name.to_string())
    }

    #[test]
    fn reads_prefixes_and_names_with_spaces() {
        let table = table(b"0x1000 0x10 LazyCompile:*a b file.js:1\nABC0 20 plain\r\n");
        assert_eq!(name(&table, 0x0fff), "");
        assert_eq!(name(&table, 0x1000), "LazyCompile:*a b file.js:1");
        assert_eq!(name(&table, 0x100f), "LazyCompile:*a b file.js:1");
        assert_eq!(name(&table, 0x1010), "");
        assert_eq!(name(&table, 0xabdf), "plain");
    }

    #[test]
    fn what_was_written_last_wins() {
        let table = table(b"1000 100 old\n1040 10 new\n10f0 20 tail\n0fff 2 head\n1046 2 inner\n");
        for (address, expected) in [
            (0x1000, "head"),
            (0x1001, "old"),
            (0x103f, "old"),
            (0x1040, "new"),
            (0x1046, "inner"),
            (0x1048, "new"),
            (0x1050, "old"),
            (0x10ef, "old"),
            (0x10f0, "tail"),
            (0x110f, "tail"),
            (0x1110, ""),
        ] {
            assert_eq!(name(&table, address), expected, "{address:#x}");
        }
    }

    #[test]
    fn agrees_with_painting_each_address() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let (mut text, mut painted) = (String::new(), vec![String::new(); 256]);
        for index in 0..500 {
            let (start, size) = (random(200), 1 + random(40));
            text.push_str(&format!("{start:x} {size:x} f{index}\n"));
            for slot in &mut painted[start as usize..(start + size) as usize] {
                *slot = format!("f{index}");
            }
        }
        let table = table(text.as_bytes());
        for (address, expected) in painted.iter().enumerate() {
            assert_eq!(&name(&table, address as u64), expected);
        }
    }

    #[test]
    fn garbage_is_skipped() {
        let table = table(
            b"\n \nzz 10 x\n10 zz x\n10 10\n10 10 \n+1000 10 x\nffffffffffffffff 2 x\n1000 0 x\n\
              \xff\xfe\x00\x01\n2000 10 \xff\xfebad\n",
        );
        assert_eq!(table.0.len(), 1);
        assert_eq!(name(&table, 0x2000), "\u{fffd}\u{fffd}bad");
    }
}
