//! What the live tests ask of the kernel, and what it says itself about threads.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the live tests can run here. Where they cannot they say so, or fail under
/// `REQUIRE_LIVE=1`.
pub(crate) fn require_live() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let live = root && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !live {
        skip("needs root and BTF");
    }
    live
}

/// Says why a test cannot run here; under `REQUIRE_LIVE=1` that is a failure.
pub(crate) fn skip(reason: &str) {
    let required = std::env::var_os("REQUIRE_LIVE").is_some_and(|value| value == "1");
    assert!(!required, "REQUIRE_LIVE=1, and this test: {reason}");
    eprintln!("SKIPPED: {reason}");
}

/// Keeps other tests of this binary waiting: measured ones must have the CPUs for themselves.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static CPUS: Mutex<()> = Mutex::new(());
    // A test that failed while it held this leaves nothing behind.
    CPUS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `stolen_ns` when a tool was started last.
static STOLEN_BEFORE: AtomicU64 = AtomicU64::new(0);

/// Time that a hypervisor has taken from all CPUs together since the machine started, in steps of 10 ms.
fn all_stolen_ns() -> u64 {
    let text = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let ticks = text
        .split_whitespace()
        .nth(8)
        .and_then(|ticks| ticks.parse::<u64>().ok());
    ticks.expect("cpu user nice system idle iowait irq softirq steal") * 10_000_000
}

/// To be called before a tool is started.
pub(crate) fn watch_stolen() {
    STOLEN_BEFORE.store(all_stolen_ns(), Ordering::Relaxed);
}

/// What a hypervisor has taken from the CPUs since then.
pub(crate) fn stolen_ns() -> u64 {
    all_stolen_ns() - STOLEN_BEFORE.load(Ordering::Relaxed)
}

/// As many samples a clock may have taken meanwhile of threads that did not run: it goes on while a hypervisor has their CPU, and
/// the time that they use up does not.
pub(crate) fn stolen_samples(hertz: f64) -> f64 {
    hertz * stolen_ns() as f64 / 1e9
}

/// A thread's `schedstat`: ns on a CPU, ns runnable but waiting for one, times put on a CPU.
///
/// For a running thread the first number lags by up to a tick.
pub(crate) fn schedstat(pid: u32, tid: u64) -> (u64, u64, u64) {
    let path = format!("/proc/{pid}/task/{tid}/schedstat");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let numbers: Vec<u64> = text
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    match numbers[..] {
        [oncpu_ns, run_delay_ns, slices] => (oncpu_ns, run_delay_ns, slices),
        _ => panic!("{path}: three numbers expected, not {text:?}"),
    }
}
