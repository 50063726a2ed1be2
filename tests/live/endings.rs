//! How runs end: killed targets, signals under load, readers that leave, disks that fill, nothing to report.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::FromRawFd;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::c_program::{BURN, compile, run};
use crate::disk::on_full_disk;
use crate::kernel::{alone, beside, schedstat};
use crate::tool::{COMMANDED, TRACERS, Tool, once};
use crate::workload::{Workload, number};

fn path(tool: &str) -> String {
    crate::built(tool).to_str().expect("plain").to_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Looks until the process has been on a CPU for so long.
fn await_cpu_time(pid: u32, tid: u64, ns: u64) {
    while schedstat(pid, tid).0 < ns {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_killed_target_is_accounted_for_up_to_its_end() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "endless", BURN, &[]);
    for asleep in [false, true] {
        let mut command = Command::new(&program);
        command.arg("1000000");
        let (mut workload, tgid) = Workload::spawn("endless", command);
        let tool = Tool::start("offcputime", &["-j", "-p", &tgid.to_string()]);
        tool.wait_attached();
        if !asleep {
            workload.go();
            await_cpu_time(tgid, tgid.into(), 200_000_000);
        }
        // Kills it and waits for its end.
        drop(workload);
        tool.interrupt();
        let output = tool.finish();
        assert_eq!(output.code, 0, "{}", output.stderr);
        let report = json(&output.stdout);
        let sum = ["oncpu_ns", "runqueue_ns", "blocked_ns"]
            .map(|phase| number(&report["accounting"], phase))
            .iter()
            .sum::<u64>();
        let lifetime = number(&report, "accounting.lifetime_ns");
        assert!(sum.abs_diff(lifetime) <= lifetime / 100, "{report:#}");
        assert!(lifetime <= number(&report, "duration_ns"));
        assert_eq!(number(&report, "accounting.open_at_end"), 0, "{report:#}");
        if asleep {
            let stacks = report["stacks"].as_array().expect("stacks");
            assert!(
                stacks.iter().any(|stack| stack["reason"] == "pipe"),
                "the wait that the kill ended: {report:#}"
            );
        } else {
            assert!(number(&report, "accounting.oncpu_ns") >= 190_000_000);
        }
    }
}

#[test]
fn a_signal_under_load_ends_with_everything_up_to_then() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "endless", BURN, &[]);
    // SAFETY: takes no handler away. Under nohup it is ignored, by all that is started here.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let start = || {
            let mut command = Command::new(&program);
            command.arg("1000000");
            Workload::spawn("endless", command)
        };
        let mut load: Vec<(Workload, u32)> = (0..4).map(|_| start()).collect();
        let tools = ["offcputime", "profile", "runqlat"].map(|tool| {
            let tool = Tool::start(tool, &["-j"]);
            tool.wait_attached();
            tool
        });
        load.iter_mut().for_each(|(workload, _)| workload.go());
        for (_, tgid) in &load {
            await_cpu_time(*tgid, u64::from(*tgid), 400_000_000);
        }
        tools.iter().for_each(|tool| tool.signal(signal));
        let [offcputime, profile, runqlat] = tools.map(|tool| {
            let output = tool.finish();
            assert_eq!(output.code, 0, "signal {signal}: {}", output.stderr);
            json(&output.stdout)
        });
        let of = |report: &Value, key: &str, tgid: u32| -> u64 {
            let entries = report[key].as_array().expect("entries").iter();
            let own = entries.filter(|entry| entry["pid"] == tgid);
            own.map(|entry| number(entry, "count")).sum()
        };
        for (_, tgid) in &load {
            assert!(of(&offcputime, "stacks", *tgid) > 0, "{tgid}");
            assert!(of(&profile, "stacks", *tgid) > 10, "{tgid}");
        }
        assert!(number(&runqlat["groups"][0], "count") > 100);
    }
}

#[test]
fn a_reader_that_leaves_after_one_line_ends_it_quietly() {
    let Some(_machine) = beside() else {
        return;
    };
    for command in [
        "runqlat -L 50ms",
        "runqlat -j 50ms",
        "biolatency -j 50ms",
        "pressure -j 50ms",
        "profile -I -F 499 --unwind fp 500ms",
        "offcputime 500ms",
        "lockstat -i 100ms",
    ] {
        let (tool, options) = command.split_once(' ').expect("options");
        let script = format!(
            "{} {options} | head -1; echo ${{PIPESTATUS[@]}}",
            path(tool)
        );
        let output = Command::new("bash").args(["-c", &script]).output();
        let output = output.expect("bash runs");
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(stdout.ends_with("\n0 0\n"), "{command}: {stdout}\n{stderr}");
        assert_eq!(stdout.lines().count(), 2, "{stdout}");
        assert!(
            !stderr.to_lowercase().contains("pipe"),
            "{command}: {stderr}"
        );
        assert!(!stderr.contains("panicked"), "{command}: {stderr}");
    }
}

#[test]
fn files_are_written_even_if_nobody_reads_stdout() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for tool in ["offcputime", "profile", "lockstat"] {
        let file = dir.path().join(format!("{tool}.json"));
        let mut child = Command::new(crate::built(tool))
            .args(["-q", "-o", file.to_str().expect("plain"), "200ms"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("an end").code(), Some(0), "{tool}");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{tool} -o: {error}"));
        assert_eq!(json(&text)["tool"], tool);
    }
}

#[test]
fn a_commands_status_survives_a_reader_that_leaves() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in COMMANDED {
        let mut child = Command::new(crate::built(tool))
            .args(["-q", "--", "sh", "-c", "sleep 0.1; exit 7"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("an end").code(), Some(7), "{tool}");
    }
}

/// Enters the kernel twice below more frames than a stack holds, then exits with its argument.
pub(crate) const DEEP: &str = r#"
__attribute__((noinline)) int recurse(int depth)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	volatile int rest = depth;

	if (depth == 0)
		return (int)syscall(SYS_getppid) + nanosleep(&pause, NULL);
	return recurse(rest - 1) + rest;
}
int main(int argc, char **argv)
{
	recurse(200);
	return atoi(argv[1]);
}
"#;

#[test]
fn strictness_changes_the_status_of_successful_commands_only() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let deep = compile(dir.path(), "deep", DEEP, &[]);
    let deep = deep.to_str().expect("plain");
    let profile = ["-e", "tracepoint:syscalls:sys_enter_getppid"];
    for (tool, options) in [("profile", &profile[..]), ("offcputime", &[])] {
        for (strict, status, code) in [("--strict", "0", 3), ("--strict", "7", 7), ("-q", "0", 0)] {
            let args = [options, &["-f", strict, "--", deep, status]].concat();
            let output = Tool::start(tool, &args).finish();
            assert_eq!(output.code, code, "{tool} {args:?}: {}", output.stderr);
            assert!(
                output.stderr.contains(" cut at 127 frames"),
                "{tool}: {}",
                output.stderr
            );
        }
    }
}

#[test]
fn full_disks_are_named_and_leave_what_was_there() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("plain");
    for tool in ["offcputime", "profile", "lockstat"] {
        let script = format!(
            "echo old > {dir}/out.json && {} -q -o {dir}/out.json 500ms > /dev/null; echo $?; \
             ls -A {dir}; cat {dir}/out.json",
            path(tool)
        );
        assert_eq!(
            on_full_disk(dir, &script),
            (
                "1\nout.json\nold\n".into(),
                format!("{tool}: write {dir}/out.json: No space left on device; make room there\n")
            )
        );
    }
    // A log grows as it goes.
    for tool in ["runqlat", "biolatency"] {
        let script = format!(
            "echo old > {dir}/old && {} -q --hdr {dir}/log 200ms 2 > /dev/null; echo $?; cat {dir}/old",
            path(tool)
        );
        assert_eq!(
            on_full_disk(dir, &script),
            (
                "1\nold\n".into(),
                format!("{tool}: write {dir}/log: No space left on device; make room there\n")
            )
        );
    }
    for tool in TRACERS {
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device");
        let output = Command::new(crate::built(tool))
            .args(["-q", "-j"])
            .args(once(tool, "200ms"))
            .stdout(full)
            .output()
            .expect("the tool runs");
        assert_eq!(output.status.code(), Some(1), "{tool}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("No space left on device"),
            "{tool}: {stderr}"
        );
        assert!(
            stderr.contains("stdout"),
            "what could not be written: {stderr}"
        );
    }
}

#[test]
fn a_window_in_which_nothing_happened_is_said_to_be_empty() {
    let Some(_machine) = beside() else {
        return;
    };
    let workload = Workload::start("asleep", &[]);
    let pid = workload.pid().to_string();
    let told = |tool: &str, args: &[&str]| {
        let mut command = Command::new(crate::built(tool));
        run(command.args(args).args(["-q", "-p", &pid]))
    };
    assert_eq!(told("profile", &["200ms"]), "", "folded");
    let profile = json(&told("profile", &["-j", "200ms"]));
    assert_eq!(profile["stacks"], serde_json::json!([]));
    let runqlat = json(&told("runqlat", &["-j", "200ms", "1"]));
    assert_eq!(number(&runqlat["groups"][0], "count"), 0);
    assert!(
        !told("runqlat", &["200ms", "1"]).trim().is_empty(),
        "it says so"
    );
    assert_eq!(
        human("profile", &["-p", &pid, "200ms"], || ()),
        "No samples.\r\n"
    );
    // Waits that began before and end after the window are there in full.
    let threads = number(
        &json(&told("offcputime", &["-j", "200ms"])),
        "accounting.threads",
    );
    assert_eq!(threads, 5);
}

/// What a tool shows on a terminal; `work` is done once it traces.
fn human(tool: &str, args: &[&str], work: impl FnOnce()) -> String {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut::<libc::c_char>();
    // SAFETY: two places for descriptors that nobody else owns; nothing else is asked for.
    let (mut ours, theirs) = unsafe {
        let rc = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            std::ptr::null(),
            std::ptr::null(),
        );
        assert_eq!(rc, 0, "a terminal");
        (File::from_raw_fd(ours), File::from_raw_fd(theirs))
    };
    let mut child = Command::new(crate::built(tool))
        .args(args)
        .stdout(theirs)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("UTF-8");
    assert!(line.contains(": tracing"), "{line}");
    let rest = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    work();
    let mut shown = Vec::new();
    // A terminal whose other end is closed gives an error, not an end.
    let _ = ours.read_to_end(&mut shown);
    let stderr = rest.join().expect("no panic").expect("UTF-8");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{stderr}");
    String::from_utf8(shown).expect("names of raw bytes are replaced")
}

#[test]
fn nothing_reaches_a_terminal_that_acts_on_it() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in ["offcputime", "profile", "runqlat", "pressure"] {
        let mut workload = Workload::start(
            "hostile",
            &[
                "--seconds",
                "0.5",
                "--jit-name",
                "jit\u{1b}[31m\u{202e}name",
            ],
        );
        let pid = workload.pid().to_string();
        let mut args = vec!["--color", "never"];
        if tool == "runqlat" {
            args.push("-L");
        }
        // It looks at the whole machine.
        if tool != "pressure" {
            args.extend(["-p", &pid]);
        }
        args.extend(once(tool, "1"));
        let shown = human(tool, &args, || {
            workload.go();
            workload.results();
        });
        assert!(shown.lines().count() > 10, "{tool}: {shown}");
        for line in shown.split("\r\n") {
            let active = |c: char| c.is_control() || c == '\u{202e}';
            assert!(!line.contains(active), "{tool}: {line:?}");
        }
        workload.finish();
    }
}
