//! flame and what it writes, against programs that others wrote.

mod accounts;
mod browser;
mod commands;
mod comparisons;
mod docs;
mod drawings;
mod hostile;
mod memory;
mod oracles;
mod perf_script;
mod refusals;
mod shapes;
mod speedscope;
mod windows;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Folded stacks with kinds, an idle thread, a waker and names that attack.
pub(crate) const STACKS: &str = "\
app;main;parse;lex 300
app;main;parse;reduce_[i] 150
app;main;run;read;vfs_read_[k] 250
app;main;run;step_[j] 100
app;[idle];main;poll_[k] 120
web;main;lock;futex_wait_[k];--;wake_[k];unlock;app 80
";

/// A run of flame, or of another program, that is over.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Its output; it succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// Its complaint; it ended with this status.
    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// Runs flame with these words, and something on stdin.
pub(crate) fn flame(args: impl AsRef<str>, input: impl AsRef<[u8]>) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(args.as_ref().split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("flame runs");
    let input = input.as_ref().to_vec();
    let mut stdin = child.stdin.take().expect("a pipe");
    // From a thread: flame may write before it has read everything, and may stop reading.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("flame ends");
    writer.join().expect("it writes");
    Run::of(output)
}

/// The text has all of these parts.
#[track_caller]
pub(crate) fn assert_has<const N: usize>(text: &str, parts: [&str; N]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?}: {text}");
    }
}

/// Files of a test's own; their paths are words.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir().join(name).to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file")
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    /// A file with this content; its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("a file");
        path
    }

    /// Folded stacks as flame makes them into another file by `command`; its path.
    pub(crate) fn made(&self, command: &str, stacks: &str, name: &str) -> String {
        let folded = self.file(&format!("{name}.in.folded"), stacks);
        let out = self.path(name);
        let to = if command.starts_with("convert") {
            ""
        } else {
            "-o"
        };
        flame(format!("{command} {folded} {to} {out}"), "").ok();
        out
    }
}
