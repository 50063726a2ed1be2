//! What the caller leaves a tool and its command: signals that are ignored, processes that cannot be made, an older log.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::prelude::*;
use crate::tool::{COMMANDED, TRACERS, once};

/// Started with these signals ignored and all others as usual.
fn ignoring(tool: &str, args: impl Args, signals: &'static [i32]) -> Tool {
    let mut command = Tool::command(tool, args);
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
    let _machine = Machine::beside();
    for tool in TRACERS.iter().copied() {
        let args = format!("-j {}", once(tool, "1").join(" "));
        let began = Instant::now();
        let running = ignoring(tool, &args, &[libc::SIGHUP]);
        running.wait_attached();
        running.signal(libc::SIGHUP);
        running.signal(libc::SIGHUP);
        running.finish().ok().report();
        assert!(began.elapsed() >= Duration::from_secs(1), "{tool}");
    }
}

/// As the background jobs of a script are started, which end such tools with `kill -INT $!`.
#[test]
fn ctrl_c_ends_a_run_though_the_caller_ignores_it() {
    let _machine = Machine::beside();
    for tool in TRACERS.iter().copied() {
        let args = format!("-j {}", once(tool, "3600").join(" "));
        let running = ignoring(tool, &args, &[libc::SIGINT]);
        running.wait_attached();
        running.signal(libc::SIGINT);
        running.finish().ok().report();
    }
}

#[test]
fn a_command_ignores_what_the_caller_ignores() {
    let _machine = Machine::beside();
    let mask = |signals: &[i32]| signals.iter().fold(0, |mask, n| mask | 1 << (n - 1));
    // Whatever these tests were started with, but for what Rust's runtime does to itself only.
    let own = fs::read_to_string("/proc/self/status").expect("own");
    let own = ignored(&own).expect("a mask") & !mask(&[libc::SIGPIPE]);
    for signals in [
        &[][..],
        &[libc::SIGHUP, libc::SIGUSR1],
        &[libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE],
    ] {
        for tool in COMMANDED.iter().copied() {
            let args = "-q -j -- grep SigIgn /proc/self/status";
            let output = ignoring(tool, args, signals).finish().ok();
            let expected = own | mask(signals);
            assert_eq!(
                ignored(&output.stdout),
                Some(expected),
                "{tool} {signals:?}"
            );
        }
    }
}

#[test]
fn a_caller_that_wants_no_word_of_its_children_changes_no_status() {
    let _machine = Machine::beside();
    for tool in COMMANDED.iter().copied() {
        let args = ["-q", "-j", "--", "sh", "-c", "exit 7"];
        ignoring(tool, args, &[libc::SIGCHLD])
            .finish()
            .status(7)
            .report();
    }
}

/// A user of whom there may be one process, or a thread or two on top: the first is the guard.
#[test]
fn a_command_for_which_there_is_no_process_says_so() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("our own");
    // Where it is built nobody else may be let in.
    let program = dir.path().join("runqlat");
    copy_program(&crate::built("runqlat"), &program);
    for (processes, what) in [
        (1, "install signal handlers"),
        (2, "install signal handlers"),
        (4, "start command"),
    ] {
        let mut command = Command::new("setpriv");
        // Nobody else's, not even another run's of this test; a container may have no more than 65,536.
        let user = format!("--reuid={}", 20_000 + std::process::id() % 40_000);
        command.args([&user, "--inh-caps=+bpf,+perfmon"]);
        command.args(["--ambient-caps=+bpf,+perfmon", "--"]);
        command.arg(&program).args(["--", "true"]);
        let limit = libc::rlimit {
            rlim_cur: processes,
            rlim_max: processes,
        };
        // SAFETY: setrlimit() reads a valid limit and is all that is called.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit);
                Ok(())
            });
        }
        let output = Tool::spawn("runqlat", command).finish().status(1);
        let why = "Resource temporarily unavailable; allow more processes: ulimit -u, and pids.max of its cgroup";
        // A thread that has just ended may still be counted, and the command's own is the one too many.
        let said = output.stderr.replace(" make a thread for it:", "");
        assert_eq!(said, format!("runqlat: {what}: {why}\n"));
    }
}

#[test]
fn a_command_is_waited_for_though_nothing_can_be_written() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    for tool in COMMANDED.iter().copied() {
        let done = dir.path().join(tool);
        let script = format!("exec 2>/dev/null; sleep 1; touch {}", done.display());
        let full = File::options().write(true).open("/dev/full");
        let mut command = Command::new(crate::built(tool));
        command.args(["-q", "-j", "100ms", "--", "sh", "-c", &script]);
        command.stdout(full.expect("a device"));
        let output = command.output().expect("the tool runs");
        assert_eq!(output.status.code(), Some(1), "{tool}");
        let complaint =
            format!("{tool}: write to stdout: No space left on device; make room there\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), complaint);
        assert!(done.exists(), "{tool}");
    }
}

#[test]
fn a_log_stays_until_there_is_something_to_write() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("old.hlog");
    let path = log.display();
    let old = "old".repeat(10_000);
    for tool in ["runqlat", "biolatency"] {
        fs::write(&log, &old).expect("a file");
        Tool::run(tool, format!("--hdr {path} -- /no/such")).status(1);
        assert!(fs::read_to_string(&log).is_ok_and(|kept| kept == old));
        // Whether or not anything was waited for.
        Tool::run(tool, format!("-P --comm nobody --hdr {path} 0.1 1")).ok();
        assert_eq!(fs::read_to_string(&log).expect("text"), "", "{tool}");
        Tool::run(tool, format!("--hdr {path} 0.1 1")).ok();
        let text = fs::read_to_string(&log).expect("text");
        assert!(!text.contains("old"), "{tool}: {text}");
    }
}
