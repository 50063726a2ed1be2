//! A perf map that anyone may have written: no panic, the last line that covers an address names it, and what has no room is left out.

#![no_main]

use libfuzzer_sys::fuzz_target;

// Of a crate that needs libbpf, which this does not.
#[path = "../../common/symbols/src/perfmap.rs"]
mod perfmap;

use perfmap::PerfMap;

fuzz_target!(|bytes: &[u8]| {
    let text = bytes.len() as u64;
    let small = PerfMap::parse(bytes.to_vec(), text + 300);
    assert!(small.len() <= text + 300);
    let map = PerfMap::parse(bytes.to_vec(), u64::MAX);
    assert!(!map.is_cut() && map.len() >= text);
    let lines: Vec<_> = bytes
        .split_inclusive(|&byte| byte == b'\n')
        .filter_map(line)
        .collect();
    for &(start, end, _) in lines.iter().take(64) {
        for address in [start.wrapping_sub(1), start, end - 1, end] {
            let last = lines
                .iter()
                .rev()
                .find(|(start, end, _)| (*start..*end).contains(&address));
            let name = last.map(|(_, _, name)| String::from_utf8_lossy(name).into_owned());
            assert_eq!(map.find(address), name);
        }
    }
});

/// START SIZE NAME, read another way.
///
/// Names end at 16 KiB.
fn line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let line = line.strip_suffix(b"\n")?;
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let word = std::str::from_utf8(words.next()?).ok()?;
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| plain)
    };
    let (start, size) = (number()?, number()?);
    let end = start.checked_add(size)?;
    let name = words.next()?;
    let name = &name[..name.len().min(16 << 10)];
    (size > 0 && !name.is_empty()).then_some((start, end, name))
}
