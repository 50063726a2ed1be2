//! What the live tests ask of the kernel, and what it says itself about threads.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

static MACHINE: RwLock<()> = RwLock::new(());

thread_local! {
    static HAS_MACHINE: Cell<bool> = const { Cell::new(false) };
}

/// The machine, as long as a test needs it. Every live test takes it before anything else, compilers included: what is measured
/// is never beside them.
#[must_use]
pub(crate) struct Machine(#[expect(dead_code, reason = "held, not looked at")] Side);

enum Side {
    Alone(#[expect(dead_code, reason = "held, not looked at")] RwLockWriteGuard<'static, ()>),
    Beside(#[expect(dead_code, reason = "held, not looked at")] RwLockReadGuard<'static, ()>),
}

/// For a test that measures, or that disturbs whoever does: no other live test runs meanwhile. `None`: see [`require_live`].
pub(crate) fn alone() -> Option<Machine> {
    // A test that failed while it held this leaves nothing behind.
    require_live().then(|| {
        let side = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Machine::taken(Side::Alone(side))
    })
}

/// For a test whose outcome is the same whatever else runs: others of its kind may run meanwhile.
pub(crate) fn beside() -> Option<Machine> {
    require_live().then(|| {
        let side = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Machine::taken(Side::Beside(side))
    })
}

impl Machine {
    fn taken(side: Side) -> Self {
        HAS_MACHINE.set(true);
        Self(side)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        HAS_MACHINE.set(false);
    }
}

/// To be called where something is started that could disturb others. A test's own threads have no names.
pub(crate) fn assert_machine_taken() {
    let is_test = thread::current().name().is_some();
    assert!(
        !is_test || HAS_MACHINE.get(),
        "a live test begins with alone() or beside()"
    );
}

/// Whether the live tests can run here. Where they cannot they say so, or fail under
/// `REQUIRE_LIVE=1`.
fn require_live() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let live = root && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !live {
        skip("needs root and BTF");
        return false;
    }
    true
}

/// Says why a test cannot run here; under `REQUIRE_LIVE=1` that is a failure.
pub(crate) fn skip(reason: &str) {
    let required = std::env::var_os("REQUIRE_LIVE").is_some_and(|value| value == "1");
    assert!(!required, "REQUIRE_LIVE=1, and this test: {reason}");
    eprintln!("SKIPPED: {reason}");
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

pub(crate) fn has_tracepoint(name: &str) -> bool {
    let types = fs::read("/sys/kernel/btf/vmlinux").expect("BTF");
    let name = format!("btf_trace_{name}\0");
    types
        .windows(name.len())
        .any(|part| part == name.as_bytes())
}
