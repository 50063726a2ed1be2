//! Tasks as `/proc` shows them.

use std::fs;
use std::sync::Arc;

/// A kernel `comm`: bytes up to the first NUL; what is not UTF-8 is replaced.
pub fn comm_text(comm: &[u8]) -> Arc<str> {
    let end = comm
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into()
}

/// The name of a live task.
pub fn comm_of(tid: u32) -> Option<Arc<str>> {
    let mut comm = fs::read(format!("/proc/{tid}/comm")).ok()?;
    comm.pop_if(|last| *last == b'\n');
    Some(comm_text(&comm))
}

/// Number of times that a thread has got a CPU (`schedstat`); 0: it is gone, or the kernel does not count.
pub fn slices_of(tgid: u32, tid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{tgid}/task/{tid}/schedstat"));
    let text = text.unwrap_or_default();
    let slices = text.split_ascii_whitespace().nth(2);
    slices.and_then(|slices| slices.parse().ok()).unwrap_or(0)
}

/// Every process that is visible.
pub fn all_processes() -> Vec<u32> {
    ids_in("/proc").collect()
}

/// Every thread of a process; none, if it has gone.
pub fn threads_of(tgid: u32) -> impl Iterator<Item = u32> {
    ids_in(&format!("/proc/{tgid}/task"))
}

fn ids_in(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_nul() {
        assert_eq!(&*comm_text(b"redis\0garbage\0"), "redis");
        assert_eq!(&*comm_text(b"sixteen bytes!!!"), "sixteen bytes!!!");
        assert_eq!(&*comm_text(b"\xff\0"), "\u{fffd}");
        assert!(comm_of(std::process::id()).is_some());
        assert!(all_processes().contains(&std::process::id()));
        assert!(threads_of(std::process::id()).any(|tid| tid == std::process::id()));
        assert_eq!(threads_of(u32::MAX).count(), 0);
    }
}
