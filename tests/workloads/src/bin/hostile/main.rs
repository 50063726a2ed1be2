//! Threads with names that try to break lines, terminals and encodings, and code made at run time whose
//! perf map does the same.

mod jit;

use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use usekit_workloads::account::Account;
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{clock, countdown};

use crate::jit::Jit;

const USAGE: &str = "hostile [--seconds S] [--jit-name NAME]…";

/// At most 15 bytes each, as the kernel keeps.
const NAMES: [&[u8]; 8] = [
    b"semi;colon;name",
    b"new\nline 7\r",
    b"\x1b[31mred\x1b[2J",
    b"\x1b]0;title\x07",
    b"\xff\xfe\xc3(bad",
    b"blank 42",
    b"<b>&amp;\"'",
    b"",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn take_name(name: &[u8]) {
    let mut terminated = name.to_vec();
    terminated.push(0);
    // SAFETY: a terminated string, of which the kernel copies at most 16 bytes.
    let rc = unsafe { libc::prctl(libc::PR_SET_NAME, terminated.as_ptr()) };
    assert_eq!(rc, 0, "any bytes make a name");
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn hostile_burn(turns: u64) -> u64 {
    countdown!(turns).wrapping_add(1)
}

/// Burns and sleeps by turns of five milliseconds, so that on-CPU and off-CPU tools both see it: for so long, and, should the
/// machine stand still meanwhile, in a fifth of as many turns as fit.
fn burn_and_sleep(seconds: f64, name: &[u8]) -> Value {
    let account = Account::open();
    let end_ns = clock::mono_ns() + (seconds * 1e9) as u64;
    let least = (seconds * 20.0) as u64;
    let (mut slept_ns, mut turns) = (0, 0);
    while clock::mono_ns() < end_ns || turns < least {
        turns += 1;
        let pause_ns = clock::mono_ns() + 5_000_000;
        while clock::mono_ns() < pause_ns {
            hostile_burn(50_000);
        }
        let before_ns = clock::mono_ns();
        clock::sleep_ns(5_000_000);
        slept_ns += clock::mono_ns() - before_ns;
    }
    account.close(json!({"kind": "name", "name_hex": hex(name), "sleep_ns": slept_ns}))
}

/// Some 10 ms at a time: turns of about the period of a sampler would be in step with it for long.
const JIT_TURNS: u64 = 20_000_000;

/// Runs each made function by turns and measures the CPU time that each got.
fn run_jit(seconds: f64, jit: &Jit, names: &[Vec<u8>]) -> Value {
    let mut spent_ns = vec![0; names.len()];
    let account = Account::open();
    let end_ns = clock::mono_ns() + (seconds * 1e9) as u64;
    while clock::mono_ns() < end_ns {
        for (nth, spent_ns) in spent_ns.iter_mut().enumerate() {
            let before_ns = clock::thread_cpu_ns();
            jit.call(nth, JIT_TURNS);
            *spent_ns += clock::thread_cpu_ns() - before_ns;
        }
    }
    let hex: Vec<String> = names.iter().map(|name| hex(name)).collect();
    account.close(json!({"kind": "jit", "name_hex": hex, "spent_ns": spent_ns}))
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let seconds: f64 = flags.number("--seconds").unwrap_or(1.0);
    let made: Vec<Vec<u8>> = flags
        .all("--jit-name")
        .map(|n| n.as_bytes().to_vec())
        .collect();
    let mut stage = Stage::new();
    for name in NAMES {
        stage.spawn("hostile", move || {
            take_name(name);
            move || Some(burn_and_sleep(seconds, name))
        });
    }
    if !made.is_empty() {
        let jit = Jit::new(&made).unwrap_or_else(|error| panic!("no code at run time: {error}"));
        stage.spawn("jit", move || move || Some(run_jit(seconds, &jit, &made)));
    }
    stage.run()
}
