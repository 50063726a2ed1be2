//! What the live tests ask of the kernel, and what it says itself about threads.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Whether the live tests can run here. Where they cannot they say so, or fail under
/// `REQUIRE_LIVE=1`.
pub(crate) fn require_live() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let live = root && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !live {
        skip("needs root and BTF");
        return false;
    }
    mount_tracefs();
    true
}

/// Where no init system has done so.
fn mount_tracefs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if Path::new("/sys/kernel/tracing/events").exists() {
            return;
        }
        // SAFETY: C strings that outlive the call; no data.
        let rc = unsafe {
            let (kind, place) = (c"tracefs".as_ptr(), c"/sys/kernel/tracing".as_ptr());
            libc::mount(kind, place, kind, 0, std::ptr::null())
        };
        assert_eq!(rc, 0, "tracefs: {}", io::Error::last_os_error());
    });
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
