//! Running a tool under test: know when it is attached, end it, and never hang.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::args::Args;
use crate::found::json;
use crate::kernel::{assert_machine_taken, schedstat, states, tasks, until};
use crate::lines::{Lines, PATIENCE};
pub(crate) use crate::tools::TRACERS;

/// Those of all that trace which start a command.
pub(crate) static COMMANDED: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let tracers = TRACERS.iter().copied();
    tracers.filter(|tool| *tool != "pressure").collect()
});

/// The arguments that make a tool look once, for so long.
pub(crate) fn once<'a>(tool: &str, time: &'a str) -> Vec<&'a str> {
    match tool {
        "profile" | "offcputime" | "lockstat" | "why" => vec![time],
        _ => vec![time, "1"],
    }
}

/// How a tool ended and what it said.
#[derive(Debug)]
pub(crate) struct Output {
    /// Results. A tool never lets a foreign name's bytes through unchecked, so this is always text.
    pub(crate) stdout: String,
    /// Everything else.
    pub(crate) stderr: String,
    /// Exit code; 128 + n after a signal, as in a shell.
    pub(crate) code: i32,
}

/// Exit status of `--strict` for losses.
const LOSSY: i32 = 3;

impl Output {
    /// The output of a tool that ended with this status.
    #[track_caller]
    pub(crate) fn status(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}", self.stderr);
        self
    }

    /// The output of a tool that had no complaints. That the machine did not run it for a while is none where nothing was lost:
    /// `--strict` alone makes a loss of it.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        let has = |words: &[&str]| {
            let mut lines = self.stderr.lines();
            lines.any(|line| words.iter().all(|words| line.contains(words)))
        };
        let only_starved = has(&[" of tracing, ", "; lost nothing; "])
            && has(&[": the machine did not run this tool for "]);
        let code = if only_starved && self.code == LOSSY {
            LOSSY
        } else {
            0
        };
        self.status(code)
    }

    /// It said this on stderr.
    #[track_caller]
    pub(crate) fn assert_says(&self, part: &str) {
        assert!(self.stderr.contains(part), "no {part:?}: {}", self.stderr);
    }

    /// The JSON objects on stdout.
    pub(crate) fn reports(&self) -> Vec<Value> {
        self.stdout.lines().map(json).collect()
    }

    /// The last line, behind what a command has written.
    pub(crate) fn last_report(&self) -> Value {
        json(self.stdout.lines().last().expect("a report"))
    }

    /// The only one.
    pub(crate) fn report(&self) -> Value {
        let mut reports = self.reports();
        assert_eq!(reports.len(), 1, "{}", self.stdout);
        reports.remove(0)
    }
}

/// For how long a process's first thread, and those of its children, have waited for a CPU.
fn starved(pid: u32) -> Duration {
    let delay = |id: &str| schedstat(format!("/proc/{id}").as_ref())[1];
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let theirs: u64 = children.split_whitespace().map(delay).sum();
    Duration::from_nanos(delay(&pid.to_string()) + theirs)
}

/// All threads of a tool sleep, and none has an errand run, such as putting a table into a map.
fn rests(pid: u32) -> bool {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let tasks = tasks(pid);
    let children = tasks.iter().map(|task| read(task.join("children")));
    let children = children.collect::<Vec<_>>().join(" ");
    let stat = |child: &str| read(PathBuf::from(format!("/proc/{child}/stat")));
    let mut children = children.split_whitespace().map(stat);
    // One that has ended stays until the next one.
    let is_errand = |stat: String| stat.contains("(unwind-") && !stat.contains(") Z ");
    let sleeps = states(pid).iter().all(|state| *state == 'S');
    sleeps && !children.any(is_errand)
}

/// A running tool. Dropping it kills it.
pub(crate) struct Tool {
    name: String,
    child: Child,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
    readers: Option<[JoinHandle<()>; 2]>,
}

impl Tool {
    /// Starts a tool of this workspace.
    pub(crate) fn start(name: &str, args: impl Args) -> Self {
        Self::spawn(name, Self::command(name, args))
    }

    /// It traces: see [`Tool::wait_attached`].
    pub(crate) fn attached(name: &str, args: impl Args) -> Self {
        let tool = Self::start(name, args);
        tool.wait_attached();
        tool
    }

    /// Runs it to its own end.
    pub(crate) fn run(name: &str, args: impl Args) -> Output {
        Self::start(name, args).finish()
    }

    pub(crate) fn command(name: &str, args: impl Args) -> Command {
        let mut command = Command::new(crate::built(name));
        // Commands of reports are the same whoever runs the tests.
        command.args(args.words()).env_remove("SUDO_UID");
        command
    }

    /// Starts any command as the tool `name`, for a test that needs an environment of its own.
    pub(crate) fn spawn(name: &str, mut command: Command) -> Self {
        assert_machine_taken();
        // A shell's background jobs ignore it, and so would a tool's command.
        // SAFETY: installs no handler.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        let (stdout, results) = Lines::of(child.stdout.take().expect("stdout is piped"));
        let (stderr, errors) = Lines::of(child.stderr.take().expect("stderr is piped"));
        Self {
            name: name.to_owned(),
            child,
            stdout,
            stderr,
            readers: Some([results, errors]),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for `NAME: tracing…` on stderr: from then on no event is missed.
    pub(crate) fn wait_attached(&self) {
        self.wait_saying(&format!("{}: tracing", self.name));
    }

    /// Waits for a line on stderr that begins so.
    pub(crate) fn wait_saying(&self, announcement: &str) {
        self.wait_saying_times(1, announcement);
    }

    /// Waits for so many of them.
    pub(crate) fn wait_saying_times(&self, times: usize, announcement: &str) {
        assert!(
            self.stderr.wait_for(times, announcement),
            "{} never said \"{announcement}\":\n{}",
            self.name,
            self.stderr.text()
        );
    }

    /// Waits for so many reports on stdout, each of them a line: one that is late skips some.
    pub(crate) fn wait_reports(&self, count: usize) {
        let are_there = self.stdout.wait_for(count, "{");
        let (name, said) = (&self.name, self.stderr.text());
        assert!(are_there, "{name}: no {count} reports:\n{said}");
    }

    /// Waits for one report more than there are: what comes next has most of an interval before the next edge.
    pub(crate) fn wait_next_report(&self) {
        let mut before = None;
        let came = self.stdout.wait_until(|lines| {
            let now = lines.len();
            now > *before.get_or_insert(now)
        });
        assert!(
            came,
            "{}: no more reports:\n{}",
            self.name,
            self.stderr.text()
        );
    }

    /// Waits for a report in JSON that `wanted` holds for.
    pub(crate) fn wait_reporting(&self, what: &str, wanted: impl Fn(&Value) -> bool) {
        let text = |line: &Vec<u8>| String::from_utf8(line.clone()).expect("JSON");
        let mut looked_at = 0;
        let reported = self.stdout.wait_until(|lines| {
            let found = lines[looked_at..]
                .iter()
                .any(|line| wanted(&json(&text(line))));
            looked_at = lines.len();
            found
        });
        assert!(
            reported,
            "{} never reported {what}: {}",
            self.name,
            self.stdout.text()
        );
    }

    /// Waits until it has looked at all that happened so far: three times it has gone round its loop, then every thread sleeps and
    /// no helper of it is at work.
    pub(crate) fn await_rest(&self) {
        let main = PathBuf::from(format!("/proc/{}", self.pid()));
        for _ in 0..3 {
            let before = schedstat(&main)[2];
            self.until("the tool looks around", || {
                schedstat(&main)[2] >= before + 2
            });
            self.until("the tool rests", || rests(self.pid()));
        }
    }

    /// Waits for something of a tool that lives.
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        until(what, || self.stderr.is_over() || holds());
        let (name, is_gone) = (&self.name, self.stderr.is_over());
        assert!(!is_gone, "{name} is gone:\n{}", self.stderr.text());
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.signal(libc::SIGINT);
    }

    /// Ctrl-C; what it wrote, having had no complaints.
    #[track_caller]
    pub(crate) fn end(self) -> Output {
        self.interrupt();
        self.finish().ok()
    }

    /// The same of one that writes one report.
    #[track_caller]
    pub(crate) fn report(self) -> Value {
        self.end().report()
    }

    /// Ctrl-C, and the way to the end. The time for which it, or a process that it waits for, could have run and had no CPU is
    /// other people's and left out.
    pub(crate) fn finish_timed(self) -> (Output, Duration) {
        let pid = self.pid();
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let before = starved(pid);
        let watch = thread::spawn(move || {
            let mut most = before;
            while !seen.load(Ordering::Acquire) {
                most = most.max(starved(pid));
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let began = Instant::now();
        self.interrupt();
        let output = self.finish();
        let took = began.elapsed();
        over.store(true, Ordering::Release);
        let most = watch.join().expect("no panic");
        (output, took.saturating_sub(most - before))
    }

    /// Sends any signal.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.pid()).expect("process ids fit");
        // SAFETY: our child, not yet waited for, so the id is still its own.
        unsafe { libc::kill(pid, signal) };
    }

    /// Looks whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("our own child");
        status.is_some()
    }

    /// Waits for its end and fails loudly if that does not come.
    pub(crate) fn finish(mut self) -> Output {
        let status = self.wait();
        for reader in self.readers.take().expect("finished only once") {
            reader.join().expect("the reader does not panic");
        }
        Output {
            stdout: String::from_utf8(self.stdout.bytes())
                .unwrap_or_else(|e| panic!("{} wrote raw bytes on stdout: {e}", self.name)),
            stderr: self.stderr.text(),
            code: status
                .code()
                .or(status.signal().map(|n| 128 + n))
                .expect("one of the two"),
        }
    }

    fn wait(&mut self) -> ExitStatus {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            let (name, is_late) = (&self.name, Instant::now() >= give_up);
            assert!(!is_late, "{name} does not end:\n{}", self.stderr.text());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // Already gone after an orderly end; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
