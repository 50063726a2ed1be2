//! Functions that have no name in a stripped file, told by a function with a name that they call.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::{Architecture, Object, ObjectSection};

use crate::Headers;
use crate::function::symbol_offsets;
use crate::source::Pieces;
use crate::variables::LIMITS;

/// Bytes of code that are searched: Debian's mariadbd has 14 MB.
const MAX_CODE: u64 = 256 << 20;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Calls that are believed: who is called everywhere tells nothing.
const MAX_CALLS: usize = 64;
/// A near call, and the bytes of it. Architecture: x86-64.
const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;

/// Addresses of the functions that call the function of this name directly; none where the file makes no sense, has no such function or no
/// index of its call frame information, or is another machine's.
pub fn callers(file: &File, headers: &Headers, callee: &str) -> Vec<Range<u64>> {
    let offsets = symbol_offsets(file, callee.as_bytes()).unwrap_or_default();
    let targets: Vec<u64> = offsets
        .iter()
        .filter_map(|offset| headers.address(*offset))
        .collect();
    if targets.is_empty() {
        return Vec::new();
    }
    let Some(starts) = function_starts(file) else {
        return Vec::new();
    };
    let mut found: Vec<Range<u64>> = calls(file, headers, &targets)
        .into_iter()
        .filter_map(|call| function_at(&starts, call))
        .collect();
    found.sort_unstable_by_key(|range| range.start);
    found.dedup();
    found
}

/// Addresses of the calls of one of these functions, where there are not too many.
fn calls(file: &File, headers: &Headers, targets: &[u64]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut left = MAX_CODE;
    for section in &headers.code {
        let mut at = section.start;
        while at < section.end && found.len() <= MAX_CALLS {
            let Some((offset, in_file)) = headers.offset(at) else {
                break;
            };
            let length = (section.end - at).min(in_file).min(PIECE as u64);
            let Some(rest) = left.checked_sub(length) else {
                return found;
            };
            left = rest;
            let mut bytes = vec![0; length as usize];
            if file.read_exact_at(&mut bytes, offset).is_err() {
                break;
            }
            found.extend(calls_in(&bytes, at, targets).take(MAX_CALLS));
            // A call that the piece ends in is in the next one, too.
            let behind = length.saturating_sub(CALL_BYTES as u64 - 1).max(1);
            at = at.saturating_add(behind);
        }
    }
    match found.len() {
        0..=MAX_CALLS => found,
        _ => Vec::new(),
    }
}

/// Calls among the bytes at an address: any that would be one of these functions', since instructions are not told apart.
fn calls_in<'a>(bytes: &'a [u8], at: u64, targets: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
    let windows = bytes.windows(CALL_BYTES).enumerate();
    windows.filter_map(move |(inside, call)| {
        let distance = call.strip_prefix(&[CALL])?.try_into().ok()?;
        let address = at.wrapping_add(inside as u64);
        let next = address.wrapping_add(CALL_BYTES as u64);
        let target = next.wrapping_add_signed(i32::from_le_bytes(distance).into());
        targets.contains(&target).then_some(address)
    })
}

/// The function that an address is in: it ends where the next one begins.
pub(crate) fn function_at(starts: &[u64], address: u64) -> Option<Range<u64>> {
    let next = starts.partition_point(|start| *start <= address);
    let start = *starts.get(next.checked_sub(1)?)?;
    Some(start..*starts.get(next)?)
}

/// Begins of functions, ascending: the index of the call frame information has one entry for each, or for each of its parts.
pub(crate) fn function_starts(file: &File) -> Option<Vec<u64>> {
    let pieces = Pieces::new(file, LIMITS);
    let elf = object::File::parse(&pieces).ok()?;
    (elf.architecture() == Architecture::X86_64).then_some(())?;
    let section = elf.section_by_name(".eh_frame_hdr")?;
    index(section.data().ok()?, section.address())
}

/// The version, and the only encodings that linkers write: a pointer from here, a number, and a table from the section's beginning.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// Beginnings out of an index that lies at an address.
fn index(bytes: &[u8], address: u64) -> Option<Vec<u64>> {
    bytes.starts_with(&HEADER).then_some(())?;
    let entries = bytes.get(HEADER_BYTES..)?.chunks_exact(ENTRY_BYTES);
    let start = |entry: &[u8]| {
        let distance = entry[..4].try_into().map_or(0, i32::from_le_bytes);
        address.wrapping_add_signed(distance.into())
    };
    let mut starts: Vec<u64> = entries.map(start).collect();
    starts.sort_unstable();
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::Seeded;

    /// A function that nothing is inlined into or taken away from, since its address is asked for.
    #[inline(never)]
    fn caller() {
        strlen_of(c"usekit");
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    extern "C" fn usekit_telltale(length: usize) -> usize {
        std::hint::black_box(length)
    }

    fn strlen_of(text: &std::ffi::CStr) {
        std::hint::black_box(usekit_telltale(text.count_bytes()));
    }

    #[test]
    fn a_function_is_told_by_what_it_calls() {
        std::hint::black_box(caller as fn())();
        let file = File::open("/proc/self/exe").expect("this program");
        let headers = Headers::read(&file).expect("an ELF file");
        let found = callers(&file, &headers, "usekit_telltale");
        let [one] = &found[..] else {
            panic!("{found:?}")
        };
        let called = symbol_offsets(&file, b"usekit_telltale").expect("a table");
        assert!(!one.contains(&headers.address(called[0]).expect("an address")));
        assert!(one.end - one.start < 4096, "{one:x?}");
        assert_eq!(callers(&file, &headers, "usekit_no_such_function"), []);
    }

    #[test]
    fn calls_are_found_wherever_they_lie() {
        // call 0x2000 at 0x1003, call 0x1000 at 0x1008, and a call that is cut off.
        let mut bytes = vec![0x90, 0xe8, 0x90];
        for (at, target) in [(0x1003_u32, 0x2000_u32), (0x1008, 0x1000)] {
            bytes.push(CALL);
            bytes.extend(target.wrapping_sub(at + 5).to_le_bytes());
        }
        bytes.extend([CALL, 0xee, 0x0f]);
        let of = |target: u64| calls_in(&bytes, 0x1000, &[target]).collect::<Vec<_>>();
        assert_eq!(of(0x2000), [0x1003]);
        assert_eq!(of(0x1000), [0x1008]);
        assert_eq!(of(0x2001), []);
    }

    #[test]
    fn functions_end_where_the_next_begins() {
        let starts = [0x1000, 0x1010, 0x1400];
        assert_eq!(function_at(&starts, 0x100f), Some(0x1000..0x1010));
        assert_eq!(function_at(&starts, 0x1010), Some(0x1010..0x1400));
        assert_eq!(function_at(&starts, 0xfff), None);
        assert_eq!(function_at(&starts, 0x1400), None, "nobody knows its end");
        let mut bytes = HEADER.to_vec();
        bytes.extend([0; 8]);
        for distance in [0x20_i32, -0x10] {
            bytes.extend(distance.to_le_bytes());
            bytes.extend([0; 4]);
        }
        assert_eq!(index(&bytes, 0x1000), Some(vec![0xff0, 0x1020]));
        assert_eq!(index(&bytes[1..], 0x1000), None);
        let mut seeded = Seeded(5);
        for _ in 0..2000 {
            let mut bytes = bytes.clone();
            seeded.damage(&mut bytes);
            let _ = index(&bytes, u64::MAX);
        }
    }
}
