//! Where a process's stack began: random with every exec, and so the name of an address space.

use std::fs;

/// `startstack` of /proc/PID/stat, counted behind the name (field 28 in proc(5), the state being field 3).
const FIELD: usize = 28 - 3;

/// `None`: the process is gone, or has no memory of its own.
pub(super) fn read(tgid: u32) -> Option<u64> {
    parse(&fs::read(format!("/proc/{tgid}/stat")).ok()?)
}

fn parse(stat: &[u8]) -> Option<u64> {
    // The name may hold anything, parentheses too; nothing behind it does.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let value = fields.split_ascii_whitespace().nth(FIELD)?.parse().ok()?;
    (value != 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_inside_the_stack() {
        let start = read(std::process::id()).expect("of this process");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let (low, high) = stack.split(' ').next().unwrap().split_once('-').unwrap();
        let [low, high] = [low, high].map(|end| u64::from_str_radix(end, 16).unwrap());
        assert!((low..high).contains(&start), "{start:x} in {stack}");
    }

    #[test]
    fn names_do_not_confuse_it() {
        let stat = b"7 (a) S 1 (b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 4242 26";
        assert_eq!(parse(stat), Some(4242));
        assert_eq!(parse(b"7 (a) Z 0"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn kernel_threads_have_none() {
        assert_eq!(read(2), None);
    }
}
