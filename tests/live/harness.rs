//! The harness itself, before anything is concluded from it.

use std::panic::catch_unwind;
use std::process::Command;

use crate::kernel::schedstat;
use crate::prelude::*;

fn shell(script: &str) -> Tool {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Tool::spawn("sh", command)
}

#[test]
fn a_workloads_totals_are_the_kernels() {
    let _machine = Machine::alone();
    let mut workload = Workload::start("spinner", ["--threads", "2", "--seconds", "0.1"]);
    let pid = workload.pid();
    workload.go();
    for result in workload.results() {
        let task = format!("/proc/{pid}/task/{}", number(&result, "tid"));
        let [oncpu_ns, _, slices] = schedstat(task.as_ref());
        // The start of the thread comes before its totals.
        assert!(oncpu_ns >= number(&result, "total.oncpu_ns"), "{result}");
        assert!(slices > number(&result, "total.slices"), "{result}");
    }
    workload.finish();
}

#[test]
fn attachment_is_awaited_and_ctrl_c_arrives() {
    let _machine = Machine::beside();
    let tool = shell(
        "trap 'echo report; exit 3' INT; echo noise >&2; echo 'sh: tracing x' >&2; \
         while :; do sleep 0.01; done",
    );
    tool.wait_attached();
    tool.interrupt();
    let output = tool.finish();
    assert_eq!((output.stdout.as_str(), output.code), ("report\n", 3));
    assert_eq!(output.stderr, "noise\nsh: tracing x\n");
}

#[test]
fn a_tool_that_gives_up_is_not_waited_for() {
    let _machine = Machine::beside();
    let waited = catch_unwind(|| shell("echo no BTF >&2; exit 1").wait_attached());
    let said = waited.expect_err("there is nothing to wait for");
    let said = said.downcast_ref::<String>().expect("a message");
    assert!(said.ends_with("tracing\":\nno BTF\n"), "{said}");
}

#[test]
fn a_signal_is_told_as_a_shell_does() {
    let _machine = Machine::beside();
    assert_eq!(shell("kill -TERM $$").finish().code, 128 + libc::SIGTERM);
    let tool = shell("exec sleep 100");
    tool.signal(libc::SIGKILL);
    assert_eq!(tool.finish().code, 128 + libc::SIGKILL);
}

#[test]
fn the_tools_are_built_here() {
    let _machine = Machine::beside();
    for name in [
        "biolatency",
        "lockstat",
        "offcputime",
        "pressure",
        "profile",
        "runqlat",
        "syscount",
        "why",
    ] {
        let version = Tool::run(name, ["--version"]).ok().stdout;
        assert!(version.starts_with(&format!("{name} ")), "{version}");
    }
}
