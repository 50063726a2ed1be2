//! From /proc/PID/stat: where a process's stack began, which is random with every exec and so the name of an address space;
//! and who its parent is.

use std::fs;

/// `startstack` of /proc/PID/stat, counted behind the name (field 28 in proc(5), the state being field 3).
const START_STACK: usize = 28 - 3;
/// `ppid`.
const PARENT: usize = 4 - 3;

/// `None`: the process is gone, or has no memory of its own.
pub(super) fn read(tgid: u32) -> Option<u64> {
    field(&fs::read(format!("/proc/{tgid}/stat")).ok()?, START_STACK)
}

/// `None`: the process is gone.
pub(super) fn parent(tgid: u32) -> Option<u32> {
    let parent = field(&fs::read(format!("/proc/{tgid}/stat")).ok()?, PARENT)?;
    u32::try_from(parent).ok()
}

fn field(stat: &[u8], number: usize) -> Option<u64> {
    // The name may hold anything, parentheses too; nothing behind it does.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let value = fields.split_ascii_whitespace().nth(number)?.parse().ok()?;
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
        assert_eq!(field(stat, START_STACK), Some(4242));
        assert_eq!(field(stat, PARENT), Some(1));
        assert_eq!(field(b"7 (a) Z 0", START_STACK), None);
        assert_eq!(field(b"", PARENT), None);
    }

    #[test]
    fn the_parent_is_known() {
        assert_eq!(
            parent(std::process::id()),
            Some(std::os::unix::process::parent_id())
        );
    }

    #[test]
    fn kernel_threads_have_none() {
        assert_eq!(read(2), None);
    }
}
