//! Containers: programs at paths and process IDs that only they see, and a tool among them.

use std::fs;
use std::process::Command;

use crate::beside::symbols::{
    HERTZ, all, assert_most, name, profile_workload, samples, samples_in, stacks,
};
use crate::c_program::{BURN, run};
use crate::prelude::*;
use crate::word::Word;

/// Runs a shell script, with `command` as its arguments, in mount and PID namespaces of its own, where it is to become the
/// workload.
pub(crate) fn enter(script: &str, command: &Command) -> Workload {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child"]);
    unshare.args(["sh", "-c", script, "sh"]);
    unshare.arg(command.get_program()).args(command.get_args());
    let mut workload = Workload::spawn("unshare", unshare);
    assert_eq!(workload.tgid, 1, "the first of its namespace");
    let outer = workload.child.id();
    let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"));
    let child = children.expect("unshare lives").trim().parse();
    workload.tgid = child.expect("one child");
    workload
}

/// The program is at a path that nobody else sees.
const INSIDE: &str = "mount -t tmpfs none /mnt && cp \"$1\" /mnt/inside && exec /mnt/inside 300";

fn is_hot_inside(frame: &Value) -> bool {
    name(frame) == "hot" && frame["module"] == "/mnt/inside"
}

#[test]
fn a_program_inside_a_container_is_named_by_its_id_outside() {
    let _machine = Machine::beside();
    let program = Program::c("inside", BURN, "-g");
    let workload = enter(INSIDE, &program.command(""));
    let tgid = workload.pid();
    // Not even its file is left outside.
    fs::remove_file(program.path()).expect("our own file");
    let (report, _) = profile_workload(workload);
    let all = all(&report, "inside");
    assert_most(samples(&report, is_hot_inside), all, &report);
    for stack in stacks(&report) {
        assert_eq!(stack["pid"], tgid, "{stack}");
        assert_eq!(stack["comm"], "inside");
    }
}

/// Waits in the end, its file still there, until the word comes by a FIFO.
const STAYS: &str = r#"
__attribute__((destructor)) static void stay(void)
{
	char byte;

	if (read(open(getenv("WORD"), O_RDONLY), &byte, 1) != 1)
		_exit(1);
}
"#;

#[test]
fn a_command_that_enters_a_container_is_followed_and_named() {
    let _machine = Machine::beside();
    let program = Program::c("inside", &format!("{BURN}{STAYS}"), "");
    let word = Word::of(&program);
    let script = format!(
        "mount -t tmpfs none /mnt && cp {} /mnt/inside && WORD={} /mnt/inside 300 now; \
         rm /mnt/inside",
        program.text(),
        word.path().display()
    );
    let command = ["--", "unshare", "-mpf", "sh", "-c", &script];
    let args = [&["-j", "-F", HERTZ][..], &command].concat();
    let tool = Tool::start("profile", args);
    word.give(&tool);
    let report = tool.finish().ok().last_report();
    let all = all(&report, "inside");
    assert_most(samples(&report, is_hot_inside), all, &report);
}

/// A tool inside a PID namespace means the IDs that it sees there.
#[test]
fn a_tool_inside_a_container_takes_and_gives_its_own_ids() {
    let _machine = Machine::beside();
    let program = Program::c("inside", BURN, "");
    let script = format!(
        "mount -t proc none /proc && {} -q -j -F {HERTZ} -- {} 300 now",
        crate::built("profile").display(),
        program.text()
    );
    let output = run(Command::new("unshare").args(["-mpf", "sh", "-c", &script]));
    let report = output.lines().find(|line| line.contains("\"stacks\":"));
    let report = json(report.expect("a report"));
    assert_most(samples_in(&report, "hot"), all(&report, "inside"), &report);
    for stack in stacks(&report) {
        assert!(number(stack, "pid") < 20, "{stack}");
    }
}

/// Names of threads and processes that only the tools have.
const OWN: [&str; 4] = ["unwind-tables", "open-files", "read-names", "read-memory"];

/// In a PID namespace the tool has two IDs, and must know which of them counts before the first event. Nobody else's tool is there, and
/// who is outside, coming up at any moment, has no ID there.
#[test]
fn a_tool_leaves_itself_out_with_all_that_it_starts() {
    let _machine = Machine::beside();
    for (tool, entries, args) in [
        ("offcputime", "stacks", ""),
        ("profile", "stacks", "-e context-switches -c 1"),
        ("runqlat", "groups", "-L"),
    ] {
        // Somebody sleeps 35 times while the tool traces.
        let inside = r#"
            mount -t tmpfs none /mnt
            timeout --foreground -s KILL 100 "$@" 2> /mnt/said & tool=$!
            until grep -q ": tracing" /mnt/said || ! kill -0 $tool; do sleep 0.02; done
            for i in $(seq 35); do sleep 0.02; done
            kill -INT $tool
            wait $tool; status=$?
            cat /mnt/said >&2
            exit $status"#;
        let outside = "while :; do sleep 1 & sleep 0.002; done > /dev/null 2>&1 & \
            unshare --pid --mount-proc --fork --kill-child sh -c \"$@\"; status=$?; \
            kill $!; exit $status";
        let output = Command::new("sh")
            .args(["-c", outside, "sh", inside, "sh"])
            .arg(crate::built(tool))
            .arg("-j")
            .args(args.split_whitespace())
            .output()
            .expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool}: {}\n{said}", output.status);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let found = list(&report, entries);
        let is_own = |entry: &&Value| {
            let comm = entry["comm"].as_str().unwrap_or_default();
            let id = entry.get("pid").unwrap_or(&entry["tid"]);
            // Who has been reaped has no number any more, and one last switch before it.
            let is_reaped = entry["kernel"].to_string().contains("do_task_dead");
            OWN.contains(&comm) || comm == tool || (id == 0 && !is_reaped)
        };
        let own: Vec<&Value> = found.iter().filter(is_own).collect();
        assert!(
            !found.is_empty() && own.is_empty(),
            "{tool}: {own:#?} of {}",
            found.len()
        );
    }
}
