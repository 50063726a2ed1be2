//! Parts of a function that the compiler moved away from it, where they have no name: the rarely taken branches (`.cold`).
//!
//! A part is jumped to from the function and jumps back into the middle of it, which nothing else does. One that does not jump back is
//! not found.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::Headers;
use crate::callers::{function_at, function_starts};

/// Bytes of a function, or of a part, that are searched; the largest interpreters' loops have 100 KiB.
const MAX_BYTES: u64 = 4 << 20;
/// Bytes of all that may be parts of one function.
const MAX_ALL: u64 = 16 << 20;
/// Functions that are looked at, as the parts of one may be.
const MAX_PARTS: usize = 256;
/// Bytes of a jump's distance.
const DISTANCE: usize = 4;

/// Addresses of the parts of the function at `function`, itself left out; none where the file makes no sense, has no index of its call
/// frame information, or is another machine's. Architecture: x86-64.
pub fn parts(file: &File, headers: &Headers, function: &Range<u64>) -> Vec<Range<u64>> {
    let Some(starts) = function_starts(file) else {
        return Vec::new();
    };
    let is_outside = |target: &u64| !function.contains(target);
    let mut found: Vec<Range<u64>> = jumps(file, headers, function)
        .into_iter()
        .filter(is_outside)
        .filter_map(|target| function_at(&starts, target))
        .collect();
    found.sort_unstable_by_key(|range| range.start);
    found.dedup();
    found.truncate(MAX_PARTS);
    let mut left = MAX_ALL;
    found.retain(|part| {
        match left.checked_sub(part.end.saturating_sub(part.start).min(MAX_BYTES)) {
            Some(rest) => left = rest,
            None => return false,
        }
        let inside = |target: &u64| *target > function.start && *target < function.end;
        jumps(file, headers, part).iter().any(inside)
    });
    found
}

/// Targets of all that may be a jump there: instructions are not told apart.
fn jumps(file: &File, headers: &Headers, range: &Range<u64>) -> Vec<u64> {
    let Some((offset, in_file)) = headers.offset(range.start) else {
        return Vec::new();
    };
    let length = range
        .end
        .saturating_sub(range.start)
        .min(in_file)
        .min(MAX_BYTES);
    let mut bytes = vec![0; length as usize];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => jumps_in(&bytes, range.start).collect(),
        Err(_) => Vec::new(),
    }
}

/// Near jumps, with and without a condition, among the bytes at an address.
fn jumps_in(bytes: &[u8], at: u64) -> impl Iterator<Item = u64> + '_ {
    (0..bytes.len()).filter_map(move |start| {
        let opcode = match bytes.get(start..)? {
            [0xe9, ..] => 1,
            [0x0f, 0x80..=0x8f, ..] => 2,
            _ => return None,
        };
        let next = start + opcode + DISTANCE;
        let distance = bytes.get(start + opcode..next)?.try_into().ok()?;
        let distance = i32::from_le_bytes(distance);
        Some(
            at.wrapping_add(next as u64)
                .wrapping_add_signed(distance.into()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::Seeded;

    #[test]
    fn jumps_are_told_from_calls_and_from_what_is_cut_off() {
        // jmp 0x2000, call, je 0xff0, a jump without its distance.
        let mut bytes = vec![0x90, 0xe9];
        bytes.extend((0x2000_i32 - 0x1006).to_le_bytes());
        bytes.extend([0xe8, 0, 0, 0, 0, 0x0f, 0x84]);
        bytes.extend((0xff0_i32 - 0x1011).to_le_bytes());
        bytes.extend([0xe9, 0, 0]);
        let found: Vec<u64> = jumps_in(&bytes, 0x1000).collect();
        assert_eq!(found, [0x2000, 0xff0]);
    }

    /// A C compiler moves away what it is told to be cold; the symbol table says where to.
    #[test]
    fn a_functions_cold_part_is_found_without_its_name() {
        const SOURCE: &str = "
            __attribute__((cold, noipa)) int rare(int a) { return a + 1; }
            int whole(int a);
            __attribute__((noipa)) int split(int a, int *b) {
                for (int i = 0; i < a; i++) {
                    if (__builtin_expect(*b > 1000, 0))
                        *b -= rare(*b) + rare(a);
                    *b = whole(*b);
                }
                return *b * 3;
            }
            __attribute__((noipa)) int whole(int a) { return a * 5; }
            int main(int argc, char **argv) { return split(argc, &argc) + whole(argc); }";
        let directory = tempfile::tempdir().expect("a directory");
        let (source, program) = (directory.path().join("a.c"), directory.path().join("a"));
        std::fs::write(&source, SOURCE).expect("a file");
        let mut compiler = std::process::Command::new("cc");
        let compiler = compiler.args(["-O2", "-freorder-blocks-and-partition", "-o"]);
        let compiled = compiler.arg(&program).arg(&source).status();
        assert!(compiled.expect("a compiler").success());
        let file = File::open(&program).expect("a program");
        let names = ["split", "split.cold", "whole"];
        let symbols = crate::symbols(&file, names).expect("a program");
        let [split, cold, whole] = symbols.map(|symbol| {
            let symbol = symbol.expect("a symbol");
            symbol.address..symbol.address + symbol.size
        });
        let headers = Headers::read(&file).expect("an ELF file");
        let [found] = &parts(&file, &headers, &split)[..] else {
            panic!("one part");
        };
        assert_eq!(found.start, cold.start);
        assert!(found.end >= cold.end);
        assert_eq!(parts(&file, &headers, &whole), []);
    }

    #[test]
    fn whatever_a_file_holds_there_is_an_end() {
        let own = File::open("/proc/self/exe").expect("this program");
        let headers = Headers::read(&own).expect("an ELF file");
        let mut seeded = Seeded(7);
        for _ in 0..64 {
            let start = seeded.below(1 << 24) as u64;
            for range in [start..start + 4096, start..u64::MAX, u64::MAX - 1..u64::MAX] {
                assert!(parts(&own, &headers, &range).len() <= MAX_PARTS);
            }
        }
    }
}
