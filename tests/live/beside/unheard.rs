//! Runs whose stdout or stderr nobody reads, or that cannot take any more: they end as they would have.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::beside::endings::DEEP;
use crate::prelude::*;
use crate::tool::{COMMANDED, TRACERS, once};

fn full() -> File {
    let device = File::options().write(true).open("/dev/full");
    device.expect("a device")
}

/// A pipe that nobody reads any more.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[test]
fn a_stderr_that_takes_nothing_costs_no_results() {
    let _machine = Machine::beside();
    for tool in TRACERS.iter().copied() {
        for stderr in [closed(), full().into()] {
            let mut command = Tool::command(tool, format!("-j {}", once(tool, "200ms").join(" ")));
            let output = command.stderr(stderr).output().expect("the tool runs");
            assert_eq!(output.status.code(), Some(0), "{tool}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(json(&text)["tool"], tool);
        }
    }
}

#[test]
fn a_stderr_that_takes_nothing_leaves_statuses_as_they_are() {
    let _machine = Machine::beside();
    let status = |tool: &str, args: &[&str], stderr: Stdio| {
        let mut command = Tool::command(tool, args);
        command.stdout(Stdio::null()).stderr(stderr);
        command.status().expect("the tool runs").code()
    };
    for tool in COMMANDED.iter().copied() {
        let args = ["--", "sh", "-c", "exit 7"];
        assert_eq!(status(tool, &args, closed()), Some(7), "{tool}");
        assert_eq!(status(tool, &args, full().into()), Some(7), "{tool}");
        let args = ["--", "/no/such/command"];
        assert_eq!(status(tool, &args, closed()), Some(1), "{tool}");
        assert_eq!(status(tool, &["--"], full().into()), Some(2), "{tool}");
    }
}

/// `TOOL 2>&1 | head -3`: what follows on stdout finds a closed pipe, too.
#[test]
fn a_reader_of_both_that_leaves_ends_it_quietly() {
    let _machine = Machine::beside();
    for tool in ["runqlat", "biolatency", "pressure", "syscount"] {
        let script = format!(
            "{} 100ms 5 2>&1 | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}",
            crate::built(tool).display()
        );
        let output = Command::new("bash").args(["-c", &script]).output();
        let output = output.expect("bash runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{tool}");
    }
}

#[test]
fn a_reader_of_results_that_left_is_no_reason_to_keep_losses_back() {
    let _machine = Machine::beside();
    let deep = Program::c("deep", DEEP, "");
    let profile = "-e tracepoint:syscalls:sys_enter_getppid";
    for (tool, options) in [("profile", profile), ("offcputime", "")] {
        let args = format!("{options} -f --strict -- {} 0", deep.text());
        let mut command = Tool::command(tool, args);
        let output = command.stdout(closed()).output().expect("the tool runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{tool}: {stderr}");
        for part in [" of tracing, ", " cut at 127 frames", "; cost "] {
            assert!(stderr.contains(part), "{tool}: {stderr}");
        }
    }
}
