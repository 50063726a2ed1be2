//! What the caller leaves a tool and its command: signals that are ignored, processes that cannot be made.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::kernel::{alone, require_live};
use crate::tool::{COMMANDED, TRACERS, Tool, once};

/// Started with these signals ignored and all others as usual.
fn ignoring(tool: &str, args: &[&str], signals: &'static [i32]) -> Tool {
    let mut command = Command::new(crate::built(tool));
    command.args(args);
    // SAFETY: signal() is async-signal-safe, and nothing else is called.
    unsafe {
        command.pre_exec(move || {
            for signal in signals {
                libc::signal(*signal, libc::SIG_IGN);
            }
            Ok(())
        });
    }
    Tool::spawn(tool, command)
}

/// The mask of ignored signals, as /proc/PID/status has it.
fn ignored(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// As `nohup` starts it, of which nothing remains when the terminal goes.
#[test]
fn a_signal_that_the_caller_ignores_ends_nothing() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    for tool in TRACERS {
        let mut args = once(tool, "1");
        args.push("-j");
        let began = Instant::now();
        let running = ignoring(tool, &args, &[libc::SIGHUP]);
        running.wait_attached();
        running.signal(libc::SIGHUP);
        running.signal(libc::SIGHUP);
        let output = running.finish();
        assert_eq!(output.code, 0, "{tool}: {}", output.stderr);
        output.report();
        assert!(began.elapsed() >= Duration::from_secs(1), "{tool}");
    }
}

#[test]
fn a_command_ignores_what_the_caller_ignores() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let mask = |signals: &[i32]| signals.iter().fold(0, |mask, n| mask | 1 << (n - 1));
    // Whatever these tests were started with, but for what Rust's runtime does to itself only.
    let own = fs::read_to_string("/proc/self/status").expect("own");
    let own = ignored(&own).expect("a mask") & !mask(&[libc::SIGPIPE]);
    for signals in [
        &[][..],
        &[libc::SIGHUP, libc::SIGUSR1],
        &[libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE],
    ] {
        for tool in COMMANDED {
            let args = ["-q", "-j", "--", "grep", "SigIgn", "/proc/self/status"];
            let output = ignoring(tool, &args, signals).finish();
            assert_eq!(output.code, 0, "{tool}: {}", output.stderr);
            assert_eq!(
                ignored(&output.stdout),
                Some(own | mask(signals)),
                "{tool} {signals:?}"
            );
        }
    }
}
