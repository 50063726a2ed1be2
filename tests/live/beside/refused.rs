//! A tool that the kernel refuses something tells its user one cause and one remedy on a line, or goes on.

use std::collections::HashSet;
use std::io;
use std::process::Command;

use crate::kernel::Machine;
use crate::supervised::run;
use crate::tool::Output;

/// Tools and their options; with these a run is short and loads all that it may.
const RUNS: [(&str, &[&str]); 9] = [
    ("runqlat", &["0.1", "1"]),
    ("syscount", &["0.1", "1"]),
    ("biolatency", &["0.1", "1"]),
    ("profile", &["-p", "TARGET", "0.1"]),
    ("offcputime", &["-p", "TARGET", "0.1"]),
    ("why", &["-p", "TARGET", "0.1"]),
    ("pressure", &["-s", "0.1", "1"]),
    ("lockstat", &["-p", "TARGET", "0.1"]),
    ("lockstat", &["--now", "-p", "TARGET"]),
];

/// Other programs that make tools ask the kernel for something.
const OTHER_RUNS: [(&str, &[&str]); 7] = [
    (
        "profile",
        &[
            "-p",
            "TARGET",
            "-e",
            "tracepoint:syscalls:sys_enter_getppid",
            "0.1",
        ],
    ),
    (
        "profile",
        &["-p", "TARGET", "-e", "uprobe:libc:malloc", "0.1"],
    ),
    ("profile", &["-p", "TARGET", "--max-overhead", "5", "0.1"]),
    ("offcputime", &["--comm", "s*", "--waker", "0.1"]),
    ("runqlat", &["--max-overhead", "5", "0.1", "1"]),
    ("runqlat", &["--hdr", "/dev/null", "--", "true"]),
    (
        "lockstat",
        &["-j", "-o", "DIRECTORY/locks.json", "--", "true"],
    ),
];

/// Errors that a call may meet on somebody's machine.
fn errors(call: &str) -> &'static [i32] {
    match call.split(' ').next() {
        Some("bpf") => &[libc::EPERM, libc::ENOMEM, libc::EINVAL],
        Some("open") => &[libc::EACCES, libc::ENOENT, libc::EMFILE],
        Some("perf_event_open") => &[libc::EACCES, libc::ENOENT, libc::EMFILE],
        Some("clone" | "clone3" | "vfork") => &[libc::EAGAIN],
        _ => &[libc::EPERM, libc::ENOMEM],
    }
}

/// Words of libraries, of Rust, and of who wrote the tool.
const JARGON: [&str; 7] = [
    "libbpf",
    "os error",
    "Error",
    "-E",
    "failed to",
    "panicked",
    "{",
];

/// Beginnings of notes that have nothing to do with what was refused: a busy machine makes them.
const BESIDE: [&str; 3] = [
    "tracing ",
    "the machine did not run this tool",
    "the kernel still takes the probes away",
];

fn is_readable(tool: &str, Output { stderr, code, .. }: &Output) -> bool {
    let mut errors = Vec::new();
    for line in stderr.lines() {
        let Some(said) = line.strip_prefix(&format!("{tool}: ")) else {
            return false;
        };
        if JARGON.iter().any(|word| said.contains(word)) {
            return false;
        }
        if !BESIDE.iter().any(|beginning| said.starts_with(beginning)) {
            errors.push(said);
        }
    }
    match (code, errors.as_slice()) {
        (0, _) => true,
        (1, [error]) => {
            let parts = error.rsplit_once("; ");
            let is_whole = |(cause, remedy): (&str, &str)| cause.contains(": ") && remedy.len() > 5;
            parts.is_some_and(is_whole) && error.len() < 240
        }
        _ => false,
    }
}

/// Sentences of tools, each once whatever its numbers are, and those that nobody would understand.
#[derive(Default)]
struct Said {
    seen: HashSet<String>,
    unreadable: Vec<String>,
}

impl Said {
    fn take(&mut self, tool: &str, refused: &str, output: &Output) {
        if !is_readable(tool, output) {
            let Output { stderr, code, .. } = output;
            let whole = format!("{tool} without {refused}: {code}\n{stderr}");
            eprintln!("unreadable: {whole}");
            self.unreadable.push(whole);
        }
        for line in output.stderr.lines() {
            // Maps and programs are many.
            let (before, after) = line.split_once(" BPF ").unwrap_or((line, ""));
            let what = after.split_once(": ").map_or("", |(_, what)| what);
            let words = format!("{before} {what}").replace(|c: char| c.is_ascii_digit(), "");
            if self.seen.insert(words) {
                eprintln!("{line}    [{} without {refused}]", output.code);
            }
        }
    }
}

/// The same for calls that differ in the map, program or process that they are about.
fn kind(call: &str) -> String {
    let words: Vec<&str> = call.split(' ').collect();
    match words[..] {
        ["bpf", command, _] => format!("bpf {command} of one"),
        ["open", path] if !path.contains("/N/") => call.to_owned(),
        [first, ..] if first != "bpf" => first.to_owned(),
        _ => call.to_owned(),
    }
}

/// Calls that no kernel refuses: a process may always ask what its own limits are.
fn is_sure(call: &str) -> bool {
    call == "prlimit 7"
}

struct Target(std::process::Child);

impl Target {
    fn start() -> Self {
        Self(
            Command::new("sleep")
                .arg("1000")
                .spawn()
                .expect("coreutils"),
        )
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Refuses the calls of a run, one after another, that `wanted` holds for.
fn walk(
    (tool, args): (&str, &[&str]),
    mut wanted: impl FnMut(&str) -> bool,
    every_error: bool,
    said: &mut Said,
) -> usize {
    let target = Target::start();
    let pid = target.0.id().to_string();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8");
    let args = args.iter().map(|arg| arg.replace("TARGET", &pid));
    let args = args.map(|arg| arg.replace("DIRECTORY", path));
    let args: Vec<String> = args.collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let whole = run(tool, &args, None);
    assert_eq!(whole.output.code, 0, "{}", whole.output.stderr);
    let calls = whole.calls.iter().filter(|call| !is_sure(call));
    let mut count = 0;
    for call in calls.filter(|call| wanted(call)) {
        let errors = errors(call);
        let chosen = if every_error {
            errors
        } else {
            std::slice::from_ref(&errors[count % errors.len()])
        };
        for error in chosen {
            let refused = format!("{call}: {}", io::Error::from_raw_os_error(*error));
            let output = run(tool, &args, Some((call, *error))).output;
            said.take(tool, &refused, &output);
        }
        count += 1;
    }
    count
}

/// Each kind of call once, for some tool; with `REFUSALS=all` each call of each tool, with each error, which takes half an hour.
/// Every sentence that a tool says is printed once, to be read.
#[test]
fn what_is_refused_is_said_with_its_cause_and_a_remedy() {
    let _machine = Machine::beside();
    let all = std::env::var_os("REFUSALS").is_some_and(|value| value == "all");
    let mut seen = HashSet::new();
    let others = OTHER_RUNS.iter().filter(|_| all);
    let (mut count, mut said) = (0, Said::default());
    for run in RUNS.iter().chain(others) {
        count += walk(*run, |call| all || seen.insert(kind(call)), all, &mut said);
    }
    let unreadable = said.unreadable.join("\n");
    assert!(unreadable.is_empty(), "{unreadable}");
    assert!(count > 20, "{count} calls");
}
