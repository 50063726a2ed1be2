//! The test's side of the workloads' protocol: start, attach in peace, go, read what they measured.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::args::Args;

/// Far beyond what any workload needs, so that only a hang runs into it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running workload. Dropping it kills it.
pub(crate) struct Workload {
    name: String,
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Its ID by its own word; somebody else may have to translate it.
    pub(crate) tgid: u32,
    /// Its program's, if that is the test's own.
    pub(crate) dir: Option<TempDir>,
}

impl Workload {
    /// The workload's program, for tools that start it themselves.
    ///
    /// # Panics
    /// With the command that builds it, when it is missing.
    pub(crate) fn program(name: &str) -> PathBuf {
        let path = crate::built(name);
        let remedy = "build the workloads first: cargo build -p usekit-workloads";
        assert!(path.exists(), "{} is missing; {remedy}", path.display());
        path
    }

    /// Starts it and waits until all its threads are asleep, ready for the word.
    pub(crate) fn start(name: &str, args: impl Args) -> Self {
        let mut command = Command::new(Self::program(name));
        command.args(args.words());
        let workload = Self::spawn(name, command);
        assert_eq!(
            workload.pid(),
            workload.child.id(),
            "{name} speaks the protocol"
        );
        workload
    }

    /// The same for any command that comes to speak the protocol.
    pub(crate) fn spawn(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // It ends with the test, whose own thread this is, where that is killed.
        // SAFETY: prctl() takes numbers and is all that is called.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut workload = Self {
            name: name.to_owned(),
            child,
            stdin,
            lines,
            tgid: 0,
            dir: None,
        };
        let line = workload.line("ready");
        let tgid = line.strip_prefix("ready ").and_then(|id| id.parse().ok());
        let tgid = tgid.unwrap_or_else(|| panic!("{name} does not speak the protocol: {line}"));
        workload.tgid = tgid;
        workload.await_sleep();
        workload
    }

    /// ID of the process that does the work.
    pub(crate) fn pid(&self) -> u32 {
        self.tgid
    }

    /// Lets the work begin.
    pub(crate) fn go(&mut self) {
        let stdin = self.stdin.as_mut().expect("open until finish");
        stdin
            .write_all(b"go\n")
            .unwrap_or_else(|e| panic!("{} is gone: {e}", self.name));
    }

    /// Waits for the end of the work and returns what its threads measured. They still exist.
    pub(crate) fn results(&mut self) -> Vec<Value> {
        let mut results = Vec::new();
        loop {
            let line = self.line("its results");
            if line == "done" {
                self.await_sleep();
                return results;
            }
            let result = serde_json::from_str(&line);
            results.push(result.unwrap_or_else(|e| panic!("{}: {e}: {line}", self.name)));
        }
    }

    /// Waits until its first thread, which spoke, waits for the next word: a wait for the CPU after the last one would be open where
    /// a tool's window ends. The kernel tells the call of a thread only when it has left its CPU.
    fn await_sleep(&self) {
        if self.tgid != self.child.id() {
            return;
        }
        let path = format!("/proc/{}/syscall", self.tgid);
        let give_up = Instant::now() + PATIENCE;
        while std::fs::read_to_string(&path).is_ok_and(|call| call.starts_with("running")) {
            assert!(Instant::now() < give_up, "{} does not sleep", self.name);
            thread::yield_now();
        }
    }

    /// From the word to the end of the work.
    pub(crate) fn work(&mut self) -> Vec<Value> {
        self.go();
        self.results()
    }

    /// Lets it exit, and fails unless it does so in order.
    pub(crate) fn finish(mut self) {
        self.stdin = None;
        let give_up = Instant::now() + PATIENCE;
        loop {
            let status = self.child.try_wait().expect("our own child");
            if let Some(status) = status {
                assert!(status.success(), "{} failed: {status}", self.name);
                return;
            }
            assert!(Instant::now() < give_up, "{} does not exit", self.name);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn line(&mut self, awaited: &str) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            let mut problem = format!("{}: no {awaited}: {error}", self.name);
            if let Ok(Some(status)) = self.child.try_wait() {
                let _ = write!(problem, "; {status}");
            }
            panic!("{problem}")
        })
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // Already gone after an orderly end; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(self.dir.take());
        // A killed process cannot remove its perf map itself.
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", self.tgid));
    }
}

/// A field of a result; dots lead into objects and lists: `resources.cpu.victims`, `values.0`.
pub(crate) fn at<'a>(result: &'a Value, field: &str) -> Option<&'a Value> {
    field.split('.').try_fold(result, |value, key| {
        let position = key.parse::<usize>();
        position.map_or_else(|_| value.get(key), |position| value.get(position))
    })
}

/// An integer field of a result.
pub(crate) fn number(result: &Value, field: &str) -> u64 {
    let number = at(result, field).and_then(Value::as_u64);
    number.unwrap_or_else(|| panic!("no number {field} in {result}"))
}
