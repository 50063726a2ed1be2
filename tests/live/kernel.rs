//! What the live tests ask of the kernel, and what it says itself about threads.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

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

impl Machine {
    /// Serves a test that measures, or that disturbs whoever does: no other live test runs meanwhile.
    pub(crate) fn alone() -> Self {
        require_live();
        // A test that failed while it held this leaves nothing behind.
        Self::taken(Side::Alone(
            MACHINE.write().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// Serves a test whose outcome is the same whatever else runs: others of its kind may run meanwhile.
    pub(crate) fn beside() -> Self {
        require_live();
        Self::taken(Side::Beside(
            MACHINE.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }

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
        "a live test begins with Machine::alone() or Machine::beside()"
    );
}

/// Ends all live tests, and says so, where none can run; under `REQUIRE_LIVE=1` each fails.
fn require_live() {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if root && Path::new("/sys/kernel/btf/vmlinux").exists() {
        return;
    }
    skip("all live tests need root and BTF");
    std::process::exit(0);
}

/// Says why a test cannot run here; under `REQUIRE_LIVE=1` that is a failure.
pub(crate) fn skip(reason: &str) {
    let required = std::env::var_os("REQUIRE_LIVE").is_some_and(|value| value == "1");
    assert!(!required, "REQUIRE_LIVE=1, and this test: {reason}");
    // Past libtest, which shows what tests print only where they fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// Directories of a process's threads in /proc; none when it is gone.
pub(crate) fn tasks(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    tasks.flatten().map(|task| task.path()).collect()
}

/// The number that a directory of `/proc` is called by.
pub(crate) fn id_of(directory: &Path) -> Option<u32> {
    directory.file_name()?.to_str()?.parse().ok()
}

/// The thread's work, by the kernel's word, begins so: the number of a system call, its arguments.
pub(crate) fn is_in_call(task: &Path, call: &str) -> bool {
    fs::read_to_string(task.join("syscall")).is_ok_and(|text| text.starts_with(call))
}

/// A thread's `schedstat`: ns on a CPU, ns runnable but waiting for one, times put on a CPU; zeros when it is gone.
///
/// For a running thread the first number lags by up to a tick.
pub(crate) fn schedstat(task: &Path) -> [u64; 3] {
    let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let mut numbers = text
        .split_whitespace()
        .map(|n| n.parse().expect("a number"));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

/// The time that threads of a process have waited for a CPU, by the kernel's account, ns.
pub(crate) fn run_delay_ns(pid: u32) -> u64 {
    tasks(pid).iter().map(|task| schedstat(task)[1]).sum()
}

/// Far beyond what is waited for, so that only a hang runs into it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something outside to become so.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    until_every(Duration::from_millis(1), what, holds);
}

/// The same with so much time from look to look.
pub(crate) fn until_every(time: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < give_up, "never: {what}");
        thread::sleep(time);
    }
}

/// The state of each thread of a process, by the letter that `ps` shows.
pub(crate) fn states(pid: u32) -> Vec<char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("tasks");
    let stats = tasks.map(|task| fs::read_to_string(task.expect("a task").path().join("stat")));
    let state = |stat: String| stat.rsplit_once(") ")?.1.chars().next();
    stats.flatten().filter_map(state).collect()
}

pub(crate) fn has_tracepoint(name: &str) -> bool {
    let types = fs::read("/sys/kernel/btf/vmlinux").expect("BTF");
    let name = format!("btf_trace_{name}\0");
    types
        .windows(name.len())
        .any(|part| part == name.as_bytes())
}
