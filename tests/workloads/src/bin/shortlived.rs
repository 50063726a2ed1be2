//! Short processes one after another, each busy in `shortlived_burn` and gone before anyone can ask for
//! its symbols.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::{clock, countdown, protocol};

const USAGE: &str = "shortlived [--count N] [--millis D] [--deleted-in DIR] [--by-word] [--burn D]";

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn shortlived_burn(turns: u64) -> u64 {
    countdown!(turns).wrapping_add(1)
}

/// Each process's work: burns `millis` of CPU time, in which it does as much work as a fast CPU would, for stolen time may count as
/// CPU time and is no work; prints what it measured. By word it is there until its input ends.
fn burn(millis: u64, by_word: bool) -> std::io::Result<()> {
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
    writeln!(std::io::stdout(), "{measured}")?;
    if by_word {
        std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

/// A copy of this program that is unlinked while its process runs.
fn copy_to(dir: &Path) -> std::io::Result<PathBuf> {
    let copy = dir.join(format!("shortlived-{}", std::process::id()));
    std::fs::copy("/proc/self/exe", &copy)?;
    Ok(copy)
}

fn start(millis: u64, deleted_in: Option<&Path>, by_word: bool) -> std::io::Result<Child> {
    let program = deleted_in.map_or_else(std::env::current_exe, copy_to)?;
    let mut command = Command::new(&program);
    command.args(["--burn", &millis.to_string()]);
    command.args(by_word.then_some("--by-word"));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    if deleted_in.is_some() {
        std::fs::remove_file(&program)?;
    }
    child
}

/// Reports what a process measured, and lets it end: by word when the test says so.
fn run(millis: u64, deleted_in: Option<&Path>, by_word: bool) -> std::io::Result<()> {
    let mut child = start(millis, deleted_in, by_word)?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
    let fields: Value = serde_json::from_str(&line).expect("one object");
    protocol::report(&fields);
    if by_word {
        protocol::done_and_wait();
    }
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}

fn main() -> ExitCode {
    let flags = Flags::of_program(USAGE);
    let by_word = flags.has("--by-word");
    if let Some(millis) = flags.number("--burn") {
        return burn(millis, by_word).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let count = flags.number("--count").unwrap_or(7);
    let millis = flags.number("--millis").unwrap_or(50);
    let deleted_in = flags.last("--deleted-in").map(Path::new);
    protocol::ready_and_wait();
    for _ in 0..count {
        let ran = run(millis, deleted_in, by_word);
        ran.unwrap_or_else(|e| panic!("cannot run a child: {e}"));
    }
    protocol::done_and_exit()
}
