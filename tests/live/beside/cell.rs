//! Tools in a root file system that has them, /proc, /sys and nothing else, as in a container from scratch: with the host's PID
//! namespace and in one of their own, under another host name, without /dev, sysctls and environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::beside::bare::{CALLS, TURNS};
use crate::c_program::{BURN, compile, copy_program, run};
use crate::kernel::Machine;
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

/// Makes its first argument the root and runs the rest there.
const ENTER: &str = r"
#include <sys/mount.h>
int main(int argc, char **argv)
{
	char *environment[] = {NULL};

	if (argc < 3 || chdir(argv[1]) || syscall(SYS_pivot_root, `.`, `.`) || umount2(`.`, MNT_DETACH) || chdir(`/`))
		return 99;
	execve(argv[2], argv + 2, environment);
	return 98;
}
";

/// Processes that are seen.
#[derive(Clone, Copy, PartialEq)]
enum Pids {
    Hosts,
    Own,
}

/// Mounts beside /proc.
const SYS: &str = "mount -t sysfs -o ro none $root/sys";

struct Cell {
    /// Holds the tree and, outside it, the way in.
    dir: TempDir,
}

impl Cell {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        compile(dir.path(), "enter", &ENTER.replace('`', "\""), "");
        let cell = Self { dir };
        for dir in ["proc", "sys"] {
            fs::create_dir_all(cell.root().join(dir)).expect("a directory");
        }
        cell
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Puts a program there, with its libraries, where they are here.
    fn install(&self, program: &Path) -> String {
        let libraries = run(Command::new("ldd").arg(program));
        let paths = libraries
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        let name = program.file_name().expect("a name");
        let inside = Path::new("/").join(name);
        let copy = |from: &Path, to: &Path| {
            let to = self.root().join(to.strip_prefix("/").expect("absolute"));
            fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
            copy_program(from, &to);
        };
        paths.for_each(|path| copy(Path::new(path), Path::new(path)));
        copy(program, &inside);
        inside.to_str().expect("plain").to_owned()
    }

    /// Runs a tool inside, with `sys` mounted, too.
    fn run(&self, pids: Pids, sys: &str, tool: &str, options: &str) -> Output {
        self.start(pids, sys, tool, options).finish()
    }

    fn start(&self, pids: Pids, sys: &str, tool: &str, options: &str) -> Tool {
        let inside = self.install(&crate::built(tool));
        let (root, enter) = (self.root(), self.dir.path().join("enter"));
        let script = format!(
            "set -e; root={}; hostname cell; mount --bind $root $root; mount -t proc none $root/proc; {sys}
            mount -t tmpfs -o ro none $root/proc/sys; mount -o remount,bind,ro $root
            exec {} $root {inside} {options}",
            root.display(),
            enter.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts"]);
        if pids == Pids::Own {
            command.args(["--pid", "--fork", "--kill-child"]);
        }
        command.args(["sh", "-c", &script]);
        Tool::spawn(tool, command)
    }

    fn report(&self, pids: Pids, tool: &str, options: &str) -> Value {
        let output = self.run(pids, SYS, tool, &format!("-j -q {options}"));
        assert_eq!(output.code, 0, "{tool}: {}", output.stderr);
        output.report()
    }
}

fn sum(report: &Value, list: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> u64 {
    let entries = report[list].as_array().expect("a list");
    let found = entries.iter().filter(|entry| is_it(entry));
    found.map(|entry| number(entry, what)).sum()
}

fn assert_tools_work(pids: Pids) {
    let cell = Cell::new();
    let turns = compile(cell.dir.path(), "turns", TURNS, "-pthread");
    let turns = cell.install(&turns);
    let calls = cell.install(&compile(cell.dir.path(), "calls", CALLS, ""));
    let report = cell.report(pids, "lockstat", &format!("-U -- {turns}"));
    let waits = sum(&report, "locks", "contentions", |lock| {
        lock["class"] == "mutex"
    });
    assert_eq!(waits, 23, "{report:#}");
    let event = "tracepoint:syscalls:sys_enter_getppid";
    let report = cell.report(pids, "profile", &format!("-e {event} -- {calls}"));
    assert_eq!(number(&report["events"], "samples"), 101, "{report:#}");
    let report = cell.report(pids, "offcputime", &format!("-- {turns}"));
    let naps = sum(&report, "stacks", "count", |stack| {
        stack["reason"] == "sleep"
    });
    assert!(naps >= 23, "{report:#}");
    let report = cell.report(pids, "runqlat", &format!("-P -- {turns}"));
    let woken = sum(&report, "groups", "count", |group| group["comm"] == "turns");
    assert!(woken >= 23, "{report:#}");
    for (tool, options, list) in [
        ("biolatency", "0.2 1", "disks"),
        ("pressure", "0.2 1", "resources"),
        ("syscount", "0.2 1", "groups"),
        ("why", "0.2", "lines"),
        ("lockstat", "--now", "waits"),
    ] {
        let report = cell.report(pids, tool, options);
        assert!(!report[list].is_null(), "{report:#}");
    }
}

#[test]
fn tools_work_in_a_bare_root_file_system_with_the_hosts_processes() {
    let _machine = Machine::beside();
    assert_tools_work(Pids::Hosts);
}

#[test]
fn tools_work_in_a_bare_root_file_system_with_processes_of_their_own() {
    let _machine = Machine::beside();
    assert_tools_work(Pids::Own);
}

/// A program of the host's, whose file is not there for the tool.
#[test]
fn a_program_outside_is_named_from_a_bare_root_file_system() {
    let _machine = Machine::beside();
    let cell = Cell::new();
    let program = compile(cell.dir.path(), "outside", BURN, "");
    let mut command = Command::new(program);
    command.arg("300");
    let mut workload = Workload::spawn("outside", command);
    let tgid = workload.pid();
    let options = format!("-j -F 499 -p {tgid}");
    let tool = cell.start(Pids::Hosts, SYS, "profile", &options);
    tool.wait_attached();
    workload.work();
    let report = tool.report();
    let is_named = |stack: &Value| stack["user"].to_string().contains("\"hot\"");
    assert!(sum(&report, "stacks", "count", is_named) > 0, "{report:#}");
}

#[test]
fn a_missing_sysfs_is_named_with_the_command_that_brings_it() {
    let _machine = Machine::beside();
    let output = Cell::new().run(Pids::Own, "", "runqlat", "0.1 1");
    assert_eq!(output.code, 1, "{}", output.stderr);
    let remedy = "mount -t sysfs none /sys\n";
    assert!(output.stderr.ends_with(remedy), "{}", output.stderr);
}
