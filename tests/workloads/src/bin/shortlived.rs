//! Short processes one after another, each busy in `shortlived_burn` and gone before anyone can ask for
//! its symbols.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::{clock, countdown, protocol};

const USAGE: &str = "shortlived [--count N] [--millis D] [--deleted-in DIR] [--burn D]";

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn shortlived_burn(turns: u64) -> u64 {
    countdown!(turns).wrapping_add(1)
}

/// Each process's work: burns `millis` of CPU time, in which it does as much work as a fast CPU would, for stolen time may count as
/// CPU time and is no work; prints what it measured.
fn burn(millis: u64) -> Result<(), serde_json::Error> {
    let start_ns = clock::thread_cpu_ns();
    let mut now_ns = start_ns;
    // A turn takes 25 µs at 4 GHz.
    let mut left = millis * 40;
    while now_ns < start_ns + millis * 1_000_000 || left > 0 {
        shortlived_burn(100_000);
        left = left.saturating_sub(1);
        now_ns = clock::thread_cpu_ns();
    }
    let measured = json!({"pid": std::process::id(), "burn_ns": now_ns - start_ns});
    serde_json::to_writer(std::io::stdout(), &measured)
}

/// A copy of this program that is unlinked while its process runs.
fn copy_to(dir: &Path) -> std::io::Result<PathBuf> {
    let copy = dir.join(format!("shortlived-{}", std::process::id()));
    std::fs::copy("/proc/self/exe", &copy)?;
    Ok(copy)
}

fn run(millis: u64, deleted_in: Option<&Path>) -> std::io::Result<Output> {
    let program = deleted_in.map_or_else(std::env::current_exe, copy_to)?;
    let mut command = Command::new(&program);
    let child = command
        .args(["--burn", &millis.to_string()])
        .stdin(Stdio::null());
    let child = child.stdout(Stdio::piped()).spawn();
    if deleted_in.is_some() {
        std::fs::remove_file(&program)?;
    }
    child?.wait_with_output()
}

fn main() -> ExitCode {
    let flags = Flags::of_program(USAGE);
    if let Some(millis) = flags.number("--burn") {
        return burn(millis).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let count = flags.number("--count").unwrap_or(7);
    let millis = flags.number("--millis").unwrap_or(50);
    let deleted_in = flags.last("--deleted-in").map(Path::new);
    protocol::ready_and_wait();
    for _ in 0..count {
        let output = run(millis, deleted_in).unwrap_or_else(|e| panic!("cannot run a child: {e}"));
        let fields: Value = serde_json::from_slice(&output.stdout).expect("one object");
        protocol::report(&fields);
    }
    protocol::done_and_exit()
}
