//! Bad input and bad days: targets that vanish, pipes that close, full disks, signals, hostile names.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use crate::prelude::*;
use crate::targets::ended;
use crate::tool::{COMMANDED, TRACERS};

#[test]
fn a_target_that_exits_leaves_a_whole_report() {
    let _machine = Machine::beside();
    for (tool, entries) in [
        ("offcputime", "stacks"),
        ("profile", "stacks"),
        ("runqlat", "groups"),
    ] {
        let workload = Workload::start("spinner", "--threads 2 --seconds 1");
        let args = format!("-j -p {}", workload.pid());
        let (output, ()) = during(tool, args, || {
            let mut workload = workload;
            workload.work();
            workload.finish();
        });
        let report = output.report();
        assert!(!list(&report, entries).is_empty(), "{tool}: {report}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let _machine = Machine::beside();
    for (tool, args) in [
        ("offcputime", "1"),
        ("runqlat", "-P 100ms 5"),
        ("runqlat", "--slower 1us 5"),
        ("profile", "-I 1"),
        ("biolatency", "100ms 5"),
        ("lockstat", "1"),
        ("pressure", "100ms 5"),
        ("syscount", "100ms 5"),
        ("why", "300ms"),
    ] {
        let mut command = Tool::command(tool, args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the tool runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("an end");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{tool}: {stderr}");
        assert!(!stderr.contains("ipe"), "{tool}: {stderr}");
        assert!(!stderr.contains(": 0 ns of tracing"), "{tool}: {stderr}");
    }
}

#[test]
fn sigterm_ends_with_the_report() {
    let _machine = Machine::beside();
    for tool in TRACERS.iter().copied() {
        let running = Tool::attached(tool, "-j");
        running.signal(libc::SIGTERM);
        running.finish().ok().report();
    }
}

#[test]
fn a_second_ctrl_c_quits_at_once() {
    let _machine = Machine::beside();
    // A command that ignores Ctrl-C keeps the tool waiting after its report.
    let script = "trap '' INT; sleep 60 & echo $!; wait";
    let mut child = Tool::command("offcputime", ["-j", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool runs");
    let pid = libc::pid_t::try_from(child.id()).expect("a PID");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let sleep = lines.next().expect("a line").expect("UTF-8");
    let sleep: libc::pid_t = sleep.parse().expect("the PID of its sleep");
    // SAFETY: takes no pointers; the child is ours and not reaped.
    unsafe { libc::kill(pid, libc::SIGINT) };
    json(&lines.next().expect("a report").expect("UTF-8"));
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGINT) };
    let status = child.wait().expect("an end");
    // Nobody else ends it.
    // SAFETY: takes no pointers. The shell waits for it, and so the number is its own.
    unsafe { libc::kill(sleep, libc::SIGKILL) };
    assert_eq!(status.signal(), Some(libc::SIGINT));
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("full.json");
    std::os::unix::fs::symlink("/dev/full", &link).expect("a link");
    for tool in ["offcputime", "profile", "lockstat"] {
        let output = Tool::run(tool, format!("-q -o {} 200ms", link.display())).status(1);
        output.assert_says("full.json: No space left on device");
    }
    let left = fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 1, "only the link");
}

#[test]
fn files_of_two_formats_agree() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let [folded, whole] = ["a.folded", "b.json"].map(|name| dir.path().join(name));
    let files = format!("-o {} -o {}", folded.display(), whole.display());
    let tool = Tool::attached("profile", format!("-I -F 499 --unwind fp {files}"));
    // Each is longer than two periods of the clock, and ends with an interrupt of a CPU's timers, of which those of the tool's are.
    for _ in 0..110 {
        std::thread::sleep(Duration::from_micros(4_500));
    }
    tool.end();
    let read = |path| fs::read_to_string(path).expect("a file");
    let samples = folded_sum(read(folded).lines());
    assert_eq!(
        samples,
        sum(list(&json(&read(whole)), "stacks"), "values.0")
    );
    assert!(samples > 100, "{samples} samples");
}

#[test]
fn a_commands_status_is_passed_on_and_its_children_are_followed() {
    let _machine = Machine::beside();
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        for tool in COMMANDED.iter().copied() {
            Tool::run(tool, ["-q", "--", "sh", "-c", script]).status(status);
        }
    }
    let output = Tool::run("offcputime", "-q -- /no/such/command").status(1);
    output.assert_says("run /no/such/command: No such file");

    let sleep = Program::c("sleep", SLEEP, "");
    let script = format!("sh -c '{}; :'; :", sleep.text());
    let command = ["sh", "-c", &script];
    let args = [&["-q", "-f", "--reason", "--"], &command[..]].concat();
    let folded = Tool::run("offcputime", args).ok().stdout;
    let mut lines = folded.lines();
    let own = json(lines.next().expect("the grandchild's word"));
    let slept = lines.find(|line| line.starts_with("sleep;[sleep]"));
    let us = folded_sum(slept);
    let bounds = 200_000..=number(&own, "took_us");
    assert_within("us of the grandchild's wait", us, bounds, &folded);
}

/// Sleeps for 0.2 s, and says how long that took, in whole us and one more.
const SLEEP: &str = r#"
int main(void)
{
	long long before = clock_ns(CLOCK_MONOTONIC);

	usleep(200000);
	say("{\"took_us\": %lld}\n", (clock_ns(CLOCK_MONOTONIC) - before) / 1000 + 1);
	return 0;
}
"#;

#[test]
fn targets_are_threads_names_and_cgroups() {
    let _machine = Machine::beside();
    let mut workload = Workload::start("spinner", "--threads 4 --seconds 1");
    let pid = workload.pid();
    let tools = [
        Tool::attached("profile", "-j --threads --comm spinner-[01]"),
        Tool::attached("runqlat", format!("-j -L -p {pid}")),
    ];
    let results = workload.work();
    let [by_name, by_process] = ended(tools);
    let stacks = list(&by_name, "stacks");
    let names = ["spinner-0", "spinner-1"];
    // Others beside this test have threads of these names, too.
    let mut all = stacks.iter().map(|stack| text(stack, "comm"));
    assert!(all.all(|comm| names.contains(&comm)), "{by_name}");
    let own = stacks.iter().filter(|stack| stack["pid"] == pid);
    let own: BTreeSet<&str> = own.map(|stack| text(stack, "comm")).collect();
    assert!(own.into_iter().eq(names), "{by_name}");
    for group in list(&by_process, "groups") {
        let own = results.iter().any(|thread| thread["tid"] == group["tid"]);
        assert!(own || group["tid"] == pid, "{group}");
    }
    workload.finish();
}

#[test]
fn hostile_names_stay_text() {
    let _machine = Machine::beside();
    let mut workload = Workload::start("hostile", "--seconds 1");
    let pid = workload.pid();
    let folded = Tool::attached("offcputime", format!("-f -p {pid}"));
    let profile = Tool::attached("profile", format!("-j -p {pid}"));
    workload.work();
    folded.interrupt();
    profile.interrupt();
    let output = folded.finish().ok();
    let lines = output.stdout.lines().count();
    assert!(lines >= 8, "a line per name at least: {}", output.stdout);
    for line in output.stdout.lines() {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<u64>().is_ok(), "{line:?}");
        let last = stack.rsplit(' ').next().unwrap_or_default();
        assert!(
            last == stack || last.parse::<f64>().is_err(),
            "reads as a differential line: {line:?}"
        );
    }
    let report = profile.finish().report();
    assert!(!list(&report, "stacks").is_empty());
    workload.finish();
}
