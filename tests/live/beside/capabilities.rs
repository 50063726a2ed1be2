//! Losses of tools without a capability: docs/capabilities.md, cell by cell.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::beside::symbols::{UNNAMED, is_of_bpf};
use crate::c_program::{compile, copy_program};
use crate::kernel::{Machine, tasks, until};
use crate::tool::{Output, Tool};

const NOBODY: u32 = 65_534;
/// Somebody else, who may do nothing.
const SOMEBODY: &str = "54321";

/// Two threads and a lock: who has it computes, has the kernel compute, and sleeps, all in one function. A third waits there for a
/// lock that it never gets.
const WORK: &str = r"
#include <pthread.h>
#include <sys/random.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, taken = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sum;
static char bytes[1 << 18];

__attribute__((noinline)) static void WORKER(void *lock)
{
	pthread_mutex_lock(lock);
	for (int i = 0; i < 1000000; i++)
		sum += i;
	sum += getrandom(bytes, sizeof(bytes), 0);
	usleep(1000);
	pthread_mutex_unlock(lock);
	sum++;
}

__attribute__((noinline)) static void *ROOT(void *lock)
{
	for (;;)
		WORKER(lock);
	return lock;
}

int main(void)
{
	pthread_t thread;

	pthread_mutex_lock(&taken);
	pthread_create(&thread, NULL, ROOT, &taken);
	pthread_create(&thread, NULL, ROOT, &mutex);
	ROOT(&mutex);
	return 0;
}
";

/// Nobody's programs: one that all may read, one that nobody else may, one that is not there any more.
struct Programs {
    dir: TempDir,
    running: Vec<Child>,
}

impl Programs {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let own = dir.path().join("own");
        fs::create_dir(&own).expect("a directory");
        let running = ["open", "private", "deleted"].map(|name| {
            // No tool has functions of these names, for another one may be traced as well.
            let names = [
                format!("-DWORKER={name}_work"),
                format!("-DROOT={name}_of_nobody"),
            ];
            let flags = ["-fomit-frame-pointer", "-pthread", &names[0], &names[1]];
            let at = if name == "private" { &own } else { dir.path() };
            let program = compile(at, name, WORK, flags);
            chown(&program, Some(NOBODY), None).expect("root");
            mode(&program, if name == "private" { 0o700 } else { 0o755 });
            chown(at, Some(NOBODY), None).expect("root");
            mode(at, if name == "private" { 0o700 } else { 0o755 });
            let mut command = Command::new("setpriv");
            // It ends where the tests are killed, too.
            command.args(["--pdeathsig", "KILL", "--clear-groups"]);
            command.args(["--reuid=65534", "--regid=65534"]);
            let child = command.arg(&program).stdin(Stdio::null()).spawn();
            let child = child.expect("util-linux is installed");
            // It is the program, no more setpriv, when it has the name.
            let comm = format!("/proc/{}/comm", child.id());
            while fs::read_to_string(&comm).expect("it runs").trim() != name {
                std::thread::yield_now();
            }
            if name == "deleted" {
                fs::remove_file(&program).expect("it is there");
            }
            child
        });
        Self {
            dir,
            running: running.into(),
        }
    }

    fn pids(&self) -> String {
        let pids = self.running.iter().map(|child| child.id().to_string());
        pids.collect::<Vec<_>>().join(",")
    }
}

/// Number of times that each process has gone to sleep, all threads together: each turn at its lock does so once or twice.
fn sleeps(pids: &str) -> Vec<u64> {
    let voluntary = |status: &str| {
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.map_or(0, |count| count.trim().parse().expect("a number"))
    };
    let of_process = |pid: &str| {
        let tasks = tasks(pid.parse().expect("an ID")).into_iter();
        let status = tasks.map(|task| fs::read_to_string(task.join("status")).unwrap_or_default());
        status.map(|status| voluntary(&status)).sum::<u64>()
    };
    pids.split(',').map(of_process).collect()
}

/// Waits until each of these processes has had so many turns at its lock that any tool has seen it in every place, however few CPUs
/// there are.
fn await_turns(pids: &str) {
    let before = sleeps(pids);
    until("every program has had its turns", || {
        let now = sleeps(pids).into_iter();
        now.zip(&before).all(|(now, before)| now >= before + 60)
    });
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
}

/// The document's table: its columns' commands, and a row for each capability.
fn table() -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/capabilities.md");
    let text = fs::read_to_string(path).expect("a document");
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells
            .map(|cell| cell.replace('`', "").trim().to_owned())
            .collect()
    };
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("| without"));
    let head = cells(lines.next().expect("a table"));
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let rows = rows.map(cells).map(|mut row| (row.remove(0), row));
    (head[1..].to_vec(), rows.collect())
}

/// `CAP_BPF`, in setpriv's words.
fn set<'a>(capabilities: impl Iterator<Item = &'a String>) -> String {
    let words = capabilities.map(|name| format!(",+{}", name[4..].to_lowercase()));
    format!("-all{}", words.collect::<String>())
}

/// Mounts of whoever starts a tool.
#[derive(Clone, Copy)]
enum Tracefs {
    /// It is in its usual place, as systemd has it.
    Mounted,
    Absent,
}

impl Tracefs {
    /// Begins a command in a mount namespace of its own.
    fn command(self) -> Command {
        let tracing = "/sys/kernel/tracing";
        let prepare = match self {
            Self::Mounted => format!("mount -t tracefs none {tracing}"),
            Self::Absent => format!("while umount {tracing} 2>/dev/null; do :; done"),
        };
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            &format!("{prepare}; exec \"$@\""),
            "sh",
        ]);
        command
    }
}

/// Runs a column's command with these capabilities and no others.
fn run(
    (column, tracefs): (&str, Tracefs),
    pids: &str,
    capabilities: &str,
    user: Option<&Path>,
) -> Output {
    let (tool, options) = column.split_once(' ').unwrap_or((column, ""));
    let mut command = tracefs.command();
    command.args(["setpriv", &format!("--bounding-set={capabilities}")]);
    match user {
        // A copy that everybody may run.
        Some(copies) => {
            let ids = ["--reuid=", "--regid="].map(|option| format!("{option}{SOMEBODY}"));
            command.args(ids).arg("--clear-groups");
            command.arg(format!("--inh-caps={capabilities}"));
            command.arg(format!("--ambient-caps={capabilities}"));
            command.arg("--").arg(copies.join(tool));
        }
        None => {
            command
                .args(["--inh-caps=-all", "--"])
                .arg(crate::built(tool));
        }
    }
    command.args(options.split_whitespace()).arg("-j");
    let is_pressure = tool == "pressure";
    match tool {
        // Everybody is watched, until the end.
        "pressure" => &mut command,
        "profile" => command.args(["-F", "999", "-p", pids]),
        "lockstat" => command.args(["-s", "9", "-p", pids]),
        "offcputime" | "why" => command.args(["-p", pids]),
        _ => command.args(["0.5", "1"]),
    };
    let watchers = ["profile", "lockstat", "offcputime", "why", "pressure"];
    let watches = watchers.contains(&tool) && options != "--now";
    let tool = Tool::spawn(tool, command);
    if watches && begins(&tool) {
        if is_pressure {
            // Everybody's tables take a while.
            tool.await_rest();
        }
        await_turns(pids);
        tool.interrupt();
    }
    tool.finish()
}

/// A tool comes to trace or has to give up, which is said here as a panic.
fn begins(tool: &Tool) -> bool {
    catch_unwind(AssertUnwindSafe(|| tool.wait_attached())).is_ok()
}

/// Some of the kernel's own frames have no names.
fn lacks_kernel_names(value: &Value, caller_is_bpf: bool) -> bool {
    match value {
        Value::String(name) => name.starts_with(UNNAMED) && !caller_is_bpf,
        Value::Object(fields) => {
            let mut fields = fields.values();
            fields.any(|field| lacks_kernel_names(field, caller_is_bpf))
        }
        // Frames, if any, are root first.
        Value::Array(entries) => {
            let mut in_bpf = false;
            entries.iter().any(|entry| {
                let caller_is_bpf = in_bpf;
                in_bpf = is_of_bpf(entry, caller_is_bpf);
                lacks_kernel_names(entry, caller_is_bpf)
            })
        }
        _ => false,
    }
}

/// Losses of a run, in the document's words.
fn lost(column: &str, output: &Output) -> String {
    if output.code != 0 {
        return "does not run".to_owned();
    }
    let seen = |name: &str| output.stdout.contains(name);
    let names = match (seen("private_work"), seen("deleted_work")) {
        _ if ["runqlat", "biolatency", "syscount"].contains(&column) => None,
        _ if !seen("open_of_nobody") => Some("other users' stacks"),
        (false, false) => Some("names in private and deleted files"),
        (false, true) => Some("names in private files"),
        (true, false) => Some("names in deleted files"),
        (true, true) => None,
    };
    let reports = output.reports();
    let mut reports = reports.iter();
    let is_nameless = reports.any(|report| lacks_kernel_names(report, false));
    let kernel = is_nameless.then_some("kernel names");
    let lost: Vec<&str> = names.into_iter().chain(kernel).collect();
    if lost.is_empty() {
        return "-".to_owned();
    }
    lost.join(", ")
}

fn assert_lost(expected: &str, column: &str, without: &str, output: &Output) {
    let Output { stdout, stderr, .. } = output;
    let found = lost(column, output);
    assert_eq!(
        found, expected,
        "{column} without {without}: {stderr}{stdout}"
    );
    // A loss is said, with the capability that it takes.
    assert_eq!(
        found != "-",
        stderr.contains(&format!("{without})")),
        "{stderr}"
    );
    assert!(
        found == "-" || found == "does not run" || stderr.contains(&found),
        "{stderr}"
    );
}

#[test]
fn without_a_capability_is_lost_what_the_document_says() {
    let _machine = Machine::beside();
    let programs = Programs::start();
    let pids = programs.pids();
    let (columns, rows) = table();
    assert!(
        columns.len() == 9 && rows.len() == 6,
        "{columns:?} {rows:?}"
    );
    for (without, cells) in &rows {
        let others = rows.iter().map(|(name, _)| name);
        let others = set(others.filter(|name| *name != without));
        for (column, expected) in columns.iter().zip(cells) {
            let output = run((column, Tracefs::Mounted), &pids, &others, None);
            assert_lost(expected, column, without, &output);
        }
    }
}

/// The least set is enough for whoever has no other power.
#[test]
fn with_the_documents_capabilities_nothing_is_lost() {
    let _machine = Machine::beside();
    let programs = Programs::start();
    let pids = programs.pids();
    let (columns, rows) = table();
    let all = set(rows.iter().map(|(name, _)| name));
    for column in &columns {
        let tool = column.split(' ').next().expect("a word");
        copy_program(&crate::built(tool), &programs.dir.path().join(tool));
        let copies = Some(programs.dir.path());
        let output = run((column, Tracefs::Mounted), &pids, &all, copies);
        assert_lost("-", column, "any", &output);
    }
}

/// Futexes are seen by the tracepoints of a system call, whose number only tracefs tells.
#[test]
fn without_tracefs_the_least_set_is_told_how_to_mount_it() {
    let _machine = Machine::beside();
    let (_, rows) = table();
    let all = set(rows.iter().map(|(name, _)| name));
    let output = run(("lockstat", Tracefs::Absent), "1", &all, None);
    assert_eq!(output.code, 1, "{}", output.stderr);
    let remedy = "mount -t tracefs none /sys/kernel/tracing\n";
    assert!(output.stderr.ends_with(remedy), "{}", output.stderr);
}
