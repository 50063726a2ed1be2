//! How long CPUs were idle, by the kernel's own account: an idle CPU need not take samples.

use std::fs;

/// Idle time since boot of one CPU, or of all, ns.
pub(crate) fn idle_ns(cpu: Option<u32>) -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // SAFETY: takes no pointers.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) })
        .unwrap_or(100)
        .max(1);
    idle_ticks(&stat, cpu) * (1_000_000_000 / per_second)
}

/// Columns 4 and 5 of `cpu` lines: idle, and idle with I/O under way.
fn idle_ticks(stat: &str, cpu: Option<u32>) -> u64 {
    let name = cpu.map_or("cpu".to_owned(), |cpu| format!("cpu{cpu}"));
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
    let fields = line.unwrap_or_default().split_whitespace();
    fields
        .skip(3)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_io_wait_count() {
        let stat =
            "cpu  1 2 3 40 5 6 7 8 9 10\ncpu0 1 1 1 30 2 0 0 0 0 0\ncpu1 0 1 2 10 3 6 7 8 9 10\n";
        assert_eq!(idle_ticks(stat, None), 45);
        assert_eq!(idle_ticks(stat, Some(1)), 13);
        assert_eq!(idle_ticks(stat, Some(7)), 0);
    }
}
