//! How runs end: killed targets, signals under load, readers that leave, disks that fill, nothing to report.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::FromRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::c_program::BURN;
use crate::disk::on_full_disk;
use crate::kernel::{schedstat, until};
use crate::off_cpu::phases_ns;
use crate::prelude::*;
use crate::tool::{COMMANDED, TRACERS, once};

fn path(tool: &str) -> String {
    crate::built(tool).to_str().expect("plain").to_owned()
}

/// A process's first thread has been on a CPU for so long, ns.
fn cpu_time(pid: u32) -> u64 {
    let task = PathBuf::from(format!("/proc/{pid}/task/{pid}"));
    schedstat(&task)[0]
}

#[test]
fn a_killed_target_is_accounted_for_up_to_its_end() {
    let _machine = Machine::alone();
    let program = Program::c("endless", BURN, "");
    for asleep in [false, true] {
        let mut workload = program.start("1000000");
        let tgid = workload.pid();
        let tool = Tool::attached("offcputime", format!("-j -p {tgid}"));
        if !asleep {
            let before = cpu_time(tgid);
            workload.go();
            until("CPU time", || cpu_time(tgid) >= before + 200_000_000);
        }
        // Kills it and waits for its end.
        drop(workload);
        let report = tool.report();
        let lifetime = number(&report, "accounting.lifetime_ns");
        let off = phases_ns(&report).abs_diff(lifetime);
        assert_within("ns off", off, ..=lifetime / 100, &report);
        assert!(lifetime <= number(&report, "duration_ns"));
        assert_eq!(number(&report, "accounting.open_at_end"), 0, "{report:#}");
        if asleep {
            // The wait that the kill ended.
            let mut stacks = list(&report, "stacks").iter();
            assert!(stacks.any(|stack| stack["reason"] == "pipe"), "{report:#}");
        } else {
            assert!(number(&report, "accounting.oncpu_ns") >= 190_000_000);
        }
    }
}

/// Computes for ever, and counts its laps in a file. A hundred thousand turns of a lap take 20 µs of the fastest CPU, however much of
/// the time a hypervisor takes away.
const LAPS: &str = r#"
int main(int argc, char **argv)
{
	int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	volatile unsigned long *laps;

	if (file < 0 || ftruncate(file, 4096))
		return 1;
	laps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (laps == MAP_FAILED)
		return 1;
	ready();
	for (unsigned long x = 1;; ++*laps)
		for (int i = 0; i < 100000; i++)
			__asm__ volatile("" : "+r"(x));
}
"#;

/// The number in such a file.
fn laps(file: &Path) -> u64 {
    let bytes = fs::read(file).expect("the program makes it");
    u64::from_ne_bytes(bytes[..8].try_into().expect("a page"))
}

#[test]
fn a_signal_under_load_ends_with_everything_up_to_then() {
    let _machine = Machine::alone();
    let program = Program::c("endless", LAPS, "");
    let counts = ["0", "1", "2", "3"].map(|name| program.dir().join(name));
    // SAFETY: takes no handler away. Under nohup it is ignored, by all that is started here.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let mut load = counts.each_ref().map(|count| program.start([count]));
        let tools = ["offcputime", "profile", "runqlat"];
        let tools = tools.map(|tool| Tool::attached(tool, "-j"));
        load.iter_mut().for_each(Workload::go);
        let tgids = load.each_ref().map(Workload::pid);
        for count in &counts {
            until("400 ms of computing", || laps(count) >= 20_000);
        }
        tools.iter().for_each(|tool| tool.signal(signal));
        let [offcputime, profile, runqlat] = tools.map(|tool| tool.finish().ok().report());
        for tgid in tgids {
            let of = |report: &Value| {
                let own = list(report, "stacks")
                    .iter()
                    .filter(|stack| stack["pid"] == tgid);
                sum(own, "count")
            };
            assert!(of(&offcputime) > 0, "{tgid}");
            assert!(of(&profile) > 10, "{tgid}");
        }
        assert!(number(&runqlat["groups"][0], "count") > 100);
    }
}

#[test]
fn a_reader_that_leaves_after_one_line_ends_it_quietly() {
    let _machine = Machine::beside();
    for command in [
        "runqlat -L 50ms",
        "runqlat -j 50ms",
        "biolatency -j 50ms",
        "pressure -j 50ms",
        "syscount -j 50ms",
        "why 300ms",
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
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
        assert!(stdout.ends_with("\n0 0\n"), "{command}: {stdout}\n{stderr}");
        assert_eq!(stdout.lines().count(), 2, "{stdout}");
        for word in ["pipe", "panicked"] {
            assert!(!stderr.to_lowercase().contains(word), "{command}: {stderr}");
        }
    }
}

#[test]
fn files_are_written_even_if_nobody_reads_stdout() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    for (tool, format) in [("offcputime", "-f"), ("profile", "-j"), ("lockstat", "")] {
        let file = dir.path().join(format!("{tool}.json"));
        let args = format!("-q {format} -o {} 200ms", file.display());
        assert_eq!(unread(Tool::command(tool, args)), Some(0), "{tool}");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{tool} -o: {error}"));
        assert_eq!(json(&text)["tool"], tool);
    }
}

/// Exit status of a tool whose stdout nobody reads.
fn unread(mut command: Command) -> Option<i32> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool runs");
    drop(child.stdout.take());
    child.wait().expect("an end").code()
}

#[test]
fn a_commands_status_survives_a_reader_that_leaves() {
    let _machine = Machine::beside();
    for tool in COMMANDED.iter().copied() {
        let args = ["-q", "--", "sh", "-c", "sleep 0.1; exit 7"];
        assert_eq!(unread(Tool::command(tool, args)), Some(7), "{tool}");
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
    let _machine = Machine::beside();
    let deep = Program::c("deep", DEEP, "");
    let profile = "-e tracepoint:syscalls:sys_enter_getppid";
    for (tool, options) in [("profile", profile), ("offcputime", "")] {
        for (strict, status, code) in [("--strict", 0, 3), ("--strict", 7, 7), ("-q", 0, 0)] {
            let args = format!("{options} -f {strict} -- {} {status}", deep.text());
            let output = Tool::run(tool, args).status(code);
            output.assert_says(" cut at 127 frames");
        }
    }
}

#[test]
fn full_disks_are_named_and_leave_what_was_there() {
    let _machine = Machine::beside();
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
    for tool in TRACERS.iter().copied() {
        let full = File::options().write(true).open("/dev/full");
        let args = format!("-q -j {}", once(tool, "200ms").join(" "));
        let mut command = Tool::command(tool, args);
        let output = command.stdout(full.expect("a device")).output();
        let output = output.expect("the tool runs");
        assert_eq!(output.status.code(), Some(1), "{tool}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        // The file that could not be written, and the reason.
        for part in ["stdout", "No space left on device"] {
            assert!(stderr.contains(part), "{tool}: {stderr}");
        }
    }
}

#[test]
fn a_window_in_which_nothing_happened_is_said_to_be_empty() {
    let _machine = Machine::beside();
    let workload = Workload::start("asleep", "");
    let pid = workload.pid();
    let told = |tool: &str, args: &str| {
        let args = format!("{args} -q -p {pid}");
        Tool::run(tool, args).ok().stdout
    };
    assert_eq!(told("profile", "200ms"), "", "folded");
    let profile = json(&told("profile", "-j 200ms"));
    assert_eq!(profile["stacks"], serde_json::json!([]));
    let runqlat = json(&told("runqlat", "-j 200ms 1"));
    assert_eq!(number(&runqlat["groups"][0], "count"), 0);
    let said = told("runqlat", "200ms 1");
    assert!(!said.trim().is_empty(), "it says so");
    let shown = human("profile", &format!("-p {pid} 200ms"), |_| ());
    let next = shown.strip_prefix("No samples.\r\n\r\nnext: ");
    let instead = format!("offcputime -p {pid} 10   # where it waits\r\n");
    assert!(next.is_some_and(|next| next.ends_with(&instead)), "{shown}");
    // Waits that began before and end after the window are there in full.
    let offcputime = json(&told("offcputime", "-j 200ms"));
    assert_eq!(number(&offcputime, "accounting.threads"), 5);
}

/// A tool that is killed where its test fails.
struct Bounded(Child);

impl Drop for Bounded {
    fn drop(&mut self) {
        // Already gone after an orderly end; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A terminal: the end that shows, and the one to write to. Neither is left open in what other tests start meanwhile.
fn terminal() -> (File, File) {
    let mut name: [libc::c_char; 64] = [0; 64];
    // SAFETY: the descriptor is nobody else's, and the name, with its length, is a place for a text that ends with a 0.
    let (ours, name) = unsafe {
        let ours = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(ours >= 0, "a terminal");
        assert_eq!(libc::grantpt(ours), 0);
        assert_eq!(libc::unlockpt(ours), 0);
        assert_eq!(libc::ptsname_r(ours, name.as_mut_ptr(), name.len()), 0);
        (File::from_raw_fd(ours), CStr::from_ptr(name.as_ptr()))
    };
    let mut open = File::options();
    // O_CLOEXEC comes with it.
    let open = open.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let theirs = open.open(name.to_str().expect("plain"));
    (ours, theirs.expect("its other end"))
}

/// Everything that a tool shows on a terminal; `work` is done once it traces, with its process.
fn human(tool: &str, args: &str, work: impl FnOnce(&Child)) -> String {
    let (mut ours, theirs) = terminal();
    let child = Tool::command(tool, args)
        .stdout(theirs)
        .stderr(Stdio::piped())
        .spawn();
    let mut tool = Bounded(child.expect("the tool runs"));
    let child = &mut tool.0;
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("UTF-8");
    assert!(line.contains(": tracing"), "{line}");
    let rest = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    work(child);
    let mut shown = Vec::new();
    // A terminal whose other end is closed gives an error, not an end.
    let _ = ours.read_to_end(&mut shown);
    let stderr = rest.join().expect("no panic").expect("UTF-8");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{stderr}");
    String::from_utf8(shown).expect("names of raw bytes are replaced")
}

#[test]
fn nothing_reaches_a_terminal_that_acts_on_it() {
    let _machine = Machine::beside();
    for tool in ["offcputime", "profile", "runqlat", "pressure"] {
        let name = "jit\u{1b}[31m\u{202e}name";
        let args = ["--seconds", "0.5", "--jit-name", name];
        let mut workload = Workload::start("hostile", args);
        let pid = workload.pid();
        let own = match tool {
            "runqlat" => format!("-L -p {pid}"),
            // It looks at the whole machine.
            "pressure" => String::new(),
            _ => format!("-p {pid}"),
        };
        let shown = human(tool, &format!("--color never {own}"), |child| {
            workload.work();
            let pid = libc::pid_t::try_from(child.id()).expect("a PID");
            // SAFETY: takes no pointers; the child is ours and not reaped.
            unsafe { libc::kill(pid, libc::SIGINT) };
        });
        assert!(shown.lines().count() > 10, "{tool}: {shown}");
        for line in shown.split("\r\n") {
            let active = |c: char| c.is_control() || c == '\u{202e}';
            assert!(!line.contains(active), "{tool}: {line:?}");
        }
        workload.finish();
    }
}
