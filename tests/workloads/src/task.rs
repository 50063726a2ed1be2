//! Threads as `/proc` shows them.

use std::fs;

use serde_json::{Value, json};

use crate::clock;

/// The caller's thread id.
#[must_use]
pub fn tid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

fn read(tid: i32, file: &str) -> String {
    let path = format!("/proc/{tid}/{file}");
    // `status` starts with the thread's name, which need not be text.
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The kernel's account of one thread since its birth.
///
/// `oncpu_ns` of a running thread lags by up to a tick; of a sleeping one it is exact.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Time on a CPU.
    pub oncpu_ns: u64,
    /// Time runnable but not running.
    pub run_delay_ns: u64,
    /// Times that it was put on a CPU.
    pub slices: u64,
    /// Voluntary context switches.
    pub nvcsw: u64,
    /// Involuntary ones.
    pub nivcsw: u64,
}

impl Totals {
    /// What was added after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            oncpu_ns: self.oncpu_ns - earlier.oncpu_ns,
            run_delay_ns: self.run_delay_ns - earlier.run_delay_ns,
            slices: self.slices - earlier.slices,
            nvcsw: self.nvcsw - earlier.nvcsw,
            nivcsw: self.nivcsw - earlier.nivcsw,
        }
    }

    /// The account as a JSON object.
    #[must_use]
    pub fn fields(&self) -> Value {
        json!({
            "oncpu_ns": self.oncpu_ns,
            "run_delay_ns": self.run_delay_ns,
            "slices": self.slices,
            "nvcsw": self.nvcsw,
            "nivcsw": self.nivcsw,
        })
    }
}

/// Reads a thread's account from `schedstat` and `status`.
#[must_use]
pub fn totals(tid: i32) -> Totals {
    let schedstat = read(tid, "schedstat");
    let mut numbers = schedstat
        .split_ascii_whitespace()
        .map(|n| n.parse().expect("a number"));
    let mut next = || numbers.next().expect("schedstat has three fields");
    let status = read(tid, "status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok())
            .expect("status has this field")
    };
    Totals {
        oncpu_ns: next(),
        run_delay_ns: next(),
        slices: next(),
        nvcsw: field("voluntary_ctxt_switches:"),
        nivcsw: field("nonvoluntary_ctxt_switches:"),
    }
}

/// Whether the thread sleeps in system call `number`, switched out for good: the kernel itself
/// waits for that before it shows the number.
#[must_use]
pub fn sleeps_in(tid: i32, number: libc::c_long) -> bool {
    read(tid, "syscall").split_ascii_whitespace().next() == Some(number.to_string().as_str())
}

/// Looks whether the thread sleeps in any system call.
#[must_use]
pub fn sleeps(tid: i32) -> bool {
    read(tid, "syscall").starts_with(|c: char| c.is_ascii_digit())
}

/// Waits until [`sleeps_in`] holds.
///
/// # Panics
/// After two minutes, which no machine is late by: something is broken and a test should say so instead of hanging.
pub fn wait_asleep(tid: i32, number: libc::c_long) {
    let give_up_ns = clock::mono_ns() + 120_000_000_000;
    while !sleeps_in(tid, number) {
        assert!(
            clock::mono_ns() < give_up_ns,
            "thread {tid} never slept in system call {number}"
        );
        clock::sleep_ns(50_000);
    }
}
