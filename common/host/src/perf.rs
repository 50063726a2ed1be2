//! perf events: opening them, and the CPUs to open them on.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use perf_event_open_sys::bindings::perf_event_attr;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: u64 = 8;

/// Opens an event on a process (-1: all) and a CPU (-1: wherever it runs).
///
/// # Errors
///
/// The kernel's.
pub fn open(attr: &perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    // SAFETY: `attr` carries its own size; no group leader.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(&raw mut attr, pid, cpu, -1, CLOSE_ON_EXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// CPUs that are online now; they need not be numbered without gaps. The first, where nobody says.
pub fn online_cpus() -> Vec<i32> {
    listed_online_cpus().unwrap_or_else(|| vec![0])
}

/// CPUs that are online now; `None` where the kernel's list cannot be read.
pub fn listed_online_cpus() -> Option<Vec<i32>> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let cpus = parse_list(list.trim());
    (!cpus.is_empty()).then_some(cpus)
}

/// `0-3,8` → 0 1 2 3 8.
fn parse_list(list: &str) -> Vec<i32> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_cpus_are_kept() {
        assert_eq!(parse_list("0-2,8,10-11"), [0, 1, 2, 8, 10, 11]);
        assert!(parse_list("").is_empty());
    }
}
