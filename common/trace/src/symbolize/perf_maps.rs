//! `/tmp/perf-PID.map`: names that a JIT writes down for its code.
//!
//! Anybody may have written that file: it is read only if it is a regular file of the process's own user or root.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

/// Larger maps are refused.
const MAX_BYTES: u64 = 256 << 20;

/// Start → end and name; no overlaps.
type Entries = BTreeMap<u64, (u64, Arc<str>)>;

struct PerfMap {
    file: File,
    /// Bytes that `entries` were made from.
    read: u64,
    entries: Entries,
}

/// The maps of every process with JIT code, held open so that they outlive it.
#[derive(Default)]
pub(super) struct PerfMaps {
    maps: HashMap<u32, Option<PerfMap>>,
    refused: u64,
}

impl PerfMaps {
    /// Opens a process's map while it can be reached.
    pub(super) fn open(&mut self, tgid: u32) {
        // A JIT may begin its map later than its first code: ask again as long as there is none.
        if matches!(self.maps.get(&tgid), Some(Some(_))) {
            return;
        }
        let map = match open(tgid) {
            Ok(file) => file.map(|file| PerfMap {
                file,
                read: 0,
                entries: Entries::new(),
            }),
            Err(Refused) => {
                self.refused += u64::from(!self.maps.contains_key(&tgid));
                None
            }
        };
        self.maps.insert(tgid, map);
    }

    /// Maps that were there but not to be trusted.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    pub(super) fn name(&mut self, tgid: u32, address: u64) -> Option<Arc<str>> {
        let map = self.maps.get_mut(&tgid)?.as_mut()?;
        map.refresh();
        let (_, (end, name)) = map.entries.range(..=address).next_back()?;
        (address < *end).then(|| Arc::clone(name))
    }
}

struct Refused;

fn open(tgid: u32) -> Result<Option<File>, Refused> {
    let status = fs::read_to_string(format!("/proc/{tgid}/status")).unwrap_or_default();
    let innermost = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .and_then(|ids| ids.split_whitespace().last())
        .unwrap_or_default();
    let path = format!("/proc/{tgid}/root/tmp/perf-{innermost}.map");
    match fs::symlink_metadata(&path) {
        Err(_) => return Ok(None),
        Ok(metadata) if !metadata.is_file() => return Err(Refused),
        Ok(_) => {}
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let Ok(file) = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&path)
    else {
        return Err(Refused);
    };
    let (Ok(metadata), Ok(process)) = (file.metadata(), fs::metadata(format!("/proc/{tgid}")))
    else {
        return Err(Refused);
    };
    let trusted = metadata.uid() == 0 || metadata.uid() == process.uid();
    if metadata.is_file() && trusted && metadata.len() <= MAX_BYTES {
        Ok(Some(file))
    } else {
        Err(Refused)
    }
}

impl PerfMap {
    fn refresh(&mut self) {
        let bytes = self
            .file
            .metadata()
            .map_or(0, |metadata| metadata.len().min(MAX_BYTES));
        if bytes <= self.read {
            return;
        }
        self.read = bytes;
        let mut text = Vec::new();
        if self.file.rewind().is_ok() && (&self.file).take(bytes).read_to_end(&mut text).is_ok() {
            self.entries = parse(&text);
        }
    }
}

/// Lines of `START SIZE NAME`, hexadecimal; later ones win where they overlap, a torn last line does not count.
fn parse(text: &[u8]) -> Entries {
    let whole = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let mut entries = Entries::new();
    for (start, end, name) in text[..whole]
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
    {
        insert(&mut entries, start, end, name);
    }
    entries
}

/// Puts an entry in place of whatever it overlaps.
fn insert(entries: &mut Entries, start: u64, end: u64, name: Arc<str>) {
    let before = entries.range_mut(..start).next_back();
    if let Some((_, (before_end, before_name))) =
        before.filter(|(_, (before_end, _))| *before_end > start)
    {
        let (rest, rest_name) = (*before_end, Arc::clone(before_name));
        *before_end = start;
        if rest > end {
            entries.insert(end, (rest, rest_name));
        }
    }
    while let Some((&covered, _)) = entries.range(start..end).next() {
        if let Some((rest, rest_name)) = entries.remove(&covered).filter(|(rest, _)| *rest > end) {
            entries.insert(end, (rest, rest_name));
        }
    }
    entries.insert(start, (end, name));
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, Arc<str>)> {
    let line = String::from_utf8_lossy(line);
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let (start, size) = (number(start)?, number(size)?);
    (size > 0).then(|| (start, start.saturating_add(size), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &[u8], addresses: &[u64]) -> Vec<Option<String>> {
        let entries = parse(text);
        let find = |address: &u64| {
            let (_, (end, name)) = entries.range(..=*address).next_back()?;
            (address < end).then(|| name.to_string())
        };
        addresses.iter().map(find).collect()
    }

    #[test]
    fn later_entries_win_and_torn_ends_do_not_count() {
        let text =
            b"1000 100 old\n0x1000 80 new name\n2000 10 \xff\nrubbish\n3000 zz x\n4000 10 torn";
        let found = names(text, &[0x1000, 0x107f, 0x1080, 0x2000, 0x4000]);
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(
            found,
            [
                some("new name"),
                some("new name"),
                some("old"),
                some("\u{fffd}"),
                None
            ]
        );
    }

    #[test]
    fn an_entry_inside_an_older_one_cuts_it() {
        let found = names(
            b"1000 100 outer\n1040 10 inner\n",
            &[0x103f, 0x1040, 0x1050],
        );
        assert_eq!(found[0].as_deref(), Some("outer"));
        assert_eq!(found[1].as_deref(), Some("inner"));
        assert_eq!(found[2].as_deref(), Some("outer"));
    }
}
