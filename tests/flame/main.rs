//! flame and what it writes, against programs that others wrote.

mod browser;
mod commands;
mod docs;
mod drawings;
mod hostile;
mod memory;
mod oracles;
mod speedscope;
mod windows;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Folded stacks with kinds, an idle thread, a waker and names that attack.
pub(crate) const STACKS: &str = "\
app;main;parse;lex 300
app;main;parse;reduce_[i] 150
app;main;run;read;vfs_read_[k] 250
app;main;run;step_[j] 100
app;[idle];main;poll_[k] 120
web;main;lock;futex_wait_[k];--;wake_[k];unlock;app 80
";

/// Runs flame.
pub(crate) fn flame(args: &[&str]) -> Output {
    flame_with(args, "")
}

/// Runs flame with something on stdin.
pub(crate) fn flame_with(args: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(args)
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
    output
}

/// What a successful run printed.
pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// What it complained about.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file with this content.
pub(crate) fn file(dir: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, content).expect("a file");
    path
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
