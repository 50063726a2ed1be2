//! Bad input and bad days: targets that vanish, pipes that close, full disks, signals, hostile names.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::kernel::beside;
use crate::tool::{COMMANDED, TRACERS, Tool};
use crate::workload::{Workload, number};

fn run(tool: &str, args: &[&str]) -> std::process::Output {
    Command::new(crate::built(tool))
        .args(args)
        .output()
        .expect("the tool runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_target_that_exits_leaves_a_whole_report() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in ["offcputime", "profile", "runqlat"] {
        let mut workload = Workload::start("spinner", &["--threads", "2", "--seconds", "1"]);
        let running = Tool::start(tool, &["-j", "-p", &workload.pid().to_string()]);
        running.wait_attached();
        workload.go();
        workload.results();
        workload.finish();
        running.interrupt();
        let output = running.finish();
        assert_eq!(output.code, 0, "{tool}: {}", output.stderr);
        let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let found = report["stacks"]
            .as_array()
            .or(report["groups"].as_array())
            .expect("results");
        assert!(!found.is_empty(), "{tool}: {report}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let Some(_machine) = beside() else {
        return;
    };
    for (tool, args) in [
        ("offcputime", &["1"][..]),
        ("runqlat", &["-P", "100ms", "5"]),
        ("profile", &["-I", "1"]),
        ("biolatency", &["100ms", "5"]),
        ("lockstat", &["1"]),
        ("pressure", &["100ms", "5"]),
    ] {
        let mut child = Command::new(crate::built(tool))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        drop(child.stdout.take());
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut stderr)
            .expect("UTF-8");
        assert_eq!(
            child.wait().expect("an end").code(),
            Some(0),
            "{tool}: {stderr}"
        );
        assert!(!stderr.contains("ipe"), "{tool}: {stderr}");
    }
}

#[test]
fn sigterm_ends_with_the_report() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in TRACERS {
        let running = Tool::start(tool, &["-j"]);
        running.wait_attached();
        running.signal(libc::SIGTERM);
        let output = running.finish();
        assert_eq!(output.code, 0, "{tool}: {}", output.stderr);
        assert!(
            serde_json::from_str::<Value>(&output.stdout).is_ok(),
            "{tool}"
        );
    }
}

#[test]
fn a_second_ctrl_c_quits_at_once() {
    let Some(_machine) = beside() else {
        return;
    };
    // A command that ignores Ctrl-C keeps the tool waiting after its report.
    let mut child = Command::new(crate::built("offcputime"))
        .args([
            "-j",
            "--",
            "sh",
            "-c",
            "trap '' INT; echo started; sleep 60 & wait",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool runs");
    let pid = libc::pid_t::try_from(child.id()).expect("a PID");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("UTF-8"), "started");
    // SAFETY: takes no pointers; the child is ours and not reaped.
    unsafe { libc::kill(pid, libc::SIGINT) };
    let report = lines.next().expect("a report").expect("UTF-8");
    assert!(serde_json::from_str::<Value>(&report).is_ok(), "{report}");
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGINT) };
    assert_eq!(child.wait().expect("an end").signal(), Some(libc::SIGINT));
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("full.json");
    std::os::unix::fs::symlink("/dev/full", &link).expect("a link");
    for tool in ["offcputime", "profile", "lockstat"] {
        let output = run(tool, &["-q", "-o", link.to_str().expect("plain"), "200ms"]);
        assert_eq!(output.status.code(), Some(1), "{tool}");
        let stderr = text(&output.stderr);
        assert!(
            stderr.contains("full.json: No space left on device"),
            "{tool}: {stderr}"
        );
    }
    assert_eq!(
        fs::read_dir(dir.path()).expect("a directory").count(),
        1,
        "only the link"
    );
}

#[test]
fn files_of_two_formats_agree() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let name = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let (folded, json) = (name("a.folded"), name("b.json"));
    let output = run(
        "profile",
        &[
            "-q", "-I", "-F", "499", "--unwind", "fp", "-o", &folded, "-o", &json, "500ms",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let sum: u64 = fs::read_to_string(folded)
        .expect("a file")
        .lines()
        .map(|line| {
            line.rsplit_once(' ')
                .expect("a value")
                .1
                .parse::<u64>()
                .expect("a number")
        })
        .sum();
    let report: Value =
        serde_json::from_str(&fs::read_to_string(json).expect("a file")).expect("JSON");
    let stacks = report["stacks"].as_array().expect("stacks");
    assert_eq!(
        sum,
        stacks
            .iter()
            .map(|stack| stack["values"][0].as_u64().expect("a number"))
            .sum::<u64>()
    );
    assert!(sum > 100, "{sum} samples");
}

#[test]
fn a_commands_status_is_passed_on_and_its_children_are_followed() {
    let Some(_machine) = beside() else {
        return;
    };
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        for tool in COMMANDED {
            let output = run(tool, &["-q", "--", "sh", "-c", script]);
            assert_eq!(
                output.status.code(),
                Some(status),
                "{tool} {script}: {}",
                text(&output.stderr)
            );
        }
    }
    let output = run("offcputime", &["-q", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("run /no/such/command: No such file"),
        "{}",
        text(&output.stderr)
    );

    let output = run(
        "offcputime",
        &[
            "-q",
            "-f",
            "--reason",
            "--",
            "sh",
            "-c",
            "sh -c 'sleep 0.2; :'; :",
        ],
    );
    let folded = text(&output.stdout);
    let slept = folded
        .lines()
        .find(|line| line.starts_with("sleep;[sleep]"))
        .expect("the grandchild's wait");
    let us: u64 = slept
        .rsplit_once(' ')
        .expect("a value")
        .1
        .parse()
        .expect("a number");
    assert!((200_000..260_000).contains(&us), "{slept}");
}

#[test]
fn targets_are_threads_names_and_cgroups() {
    let Some(_machine) = beside() else {
        return;
    };
    let mut workload = Workload::start("spinner", &["--threads", "4", "--seconds", "1"]);
    let pid = workload.pid().to_string();
    let by_name = Tool::start("profile", &["-j", "--threads", "--comm", "spinner-[01]"]);
    let by_process = Tool::start("runqlat", &["-j", "-L", "-p", &pid]);
    by_name.wait_attached();
    by_process.wait_attached();
    workload.go();
    let results = workload.results();
    by_name.interrupt();
    by_process.interrupt();
    let names: Value = serde_json::from_str(&by_name.finish().stdout).expect("JSON");
    let comms: std::collections::BTreeSet<&str> = names["stacks"]
        .as_array()
        .expect("stacks")
        .iter()
        .filter_map(|stack| stack["comm"].as_str())
        .collect();
    assert_eq!(
        comms.into_iter().collect::<Vec<_>>(),
        ["spinner-0", "spinner-1"]
    );
    let threads: Value = serde_json::from_str(&by_process.finish().stdout).expect("JSON");
    for group in threads["groups"].as_array().expect("groups") {
        let tid = number(group, "tid");
        let known = results.iter().any(|thread| number(thread, "tid") == tid)
            || tid == u64::from(workload.pid());
        assert!(known, "{group}");
    }
    workload.finish();
}

#[test]
fn hostile_names_stay_text() {
    let Some(_machine) = beside() else {
        return;
    };
    let mut workload = Workload::start("hostile", &["--seconds", "1"]);
    let pid = workload.pid().to_string();
    let folded = Tool::start("offcputime", &["-f", "-p", &pid]);
    let json = Tool::start("profile", &["-j", "-p", &pid]);
    folded.wait_attached();
    json.wait_attached();
    workload.go();
    workload.results();
    folded.interrupt();
    json.interrupt();
    let output = folded.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        output.stdout.lines().count() >= 8,
        "a line per name at least: {}",
        output.stdout
    );
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
    let report: Value = serde_json::from_str(&json.finish().stdout).expect("JSON");
    assert!(!report["stacks"].as_array().expect("stacks").is_empty());
    workload.finish();
}
