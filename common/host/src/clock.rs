//! Clocks: the one that events are stamped with, and the time of day.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

/// Begin and end of what was traced, as [`monotonic_ns`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// When events began to count, ns.
    pub start_ns: u64,
    /// When they ceased to, ns.
    pub end_ns: u64,
}

impl Edges {
    /// Length, ns.
    pub fn ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Length.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.ns())
    }

    /// For JSON: `start_ns` and `end_ns`.
    pub fn add_to(self, object: &mut Map<String, Value>) {
        object.insert("start_ns".into(), self.start_ns.into());
        object.insert("end_ns".into(), self.end_ns.into());
    }
}

/// Now, on the clock that the BPF side stamps with (`CLOCK_MONOTONIC` outside all time namespaces), ns.
pub fn monotonic_ns() -> u64 {
    static AHEAD: OnceLock<i64> = OnceLock::new();
    let ahead_ns = AHEAD.get_or_init(|| {
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        monotonic_ahead_ns(&offsets).unwrap_or(0)
    });
    clock_ns(libc::CLOCK_MONOTONIC).saturating_add_signed(-ahead_ns)
}

/// By what a time namespace's clock is ahead, from the lines of timens_offsets (time_namespaces(7)): clock, seconds, ns.
fn monotonic_ahead_ns(offsets: &str) -> Option<i64> {
    let line = offsets
        .lines()
        .find_map(|line| line.strip_prefix("monotonic "))?;
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    let (seconds, ns): (i64, i64) = (numbers.next()??, numbers.next()??);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Now on any clock that shows no times before its beginning, ns.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Local time of day of a `CLOCK_MONOTONIC` stamp, to the millisecond.
pub fn wall_clock(time_ns: u64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let ago = monotonic_ns().saturating_sub(time_ns);
    let then = now.saturating_sub(Duration::from_nanos(ago));
    format!(
        "{}.{:03}",
        time_of_day(then.as_secs()),
        then.subsec_millis()
    )
}

/// Local time of day, `unix_s` seconds after 1970 began.
pub fn time_of_day(unix_s: u64) -> String {
    let seconds = libc::time_t::try_from(unix_s).unwrap_or(0);
    // SAFETY: all-zero is a valid tm; localtime_r fills it.
    let local = unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut local);
        local
    };
    format!(
        "{:02}:{:02}:{:02}",
        local.tm_hour, local.tm_min, local.tm_sec
    )
}

/// A duration in whole nanoseconds.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_says_by_how_much_its_clock_is_ahead() {
        let offsets = "monotonic         -3   500000000\nboottime           7         0\n";
        assert_eq!(monotonic_ahead_ns(offsets), Some(-2_500_000_000));
        assert_eq!(monotonic_ahead_ns(""), None);
        assert_eq!(monotonic_ahead_ns("monotonic 9223372036854775807 0"), None);
    }
}
