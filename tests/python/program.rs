//! The program whose threads stand still, seen from outside.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::interpreters::Interpreter;
use super::outside::Outside;

/// Threads that the program starts.
pub(crate) const THREADS: usize = 16;

/// A frame as the program says it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: u64,
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) first_line: u64,
    pub(crate) line: Option<u64>,
}

/// The program.
pub(crate) struct Standing {
    child: Child,
    pipes: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
    pub(crate) outside: Outside,
    _modules: TempDir,
}

impl Standing {
    pub(crate) fn start(interpreter: &Interpreter) -> Self {
        let modules = tempfile::tempdir().expect("a directory");
        let module = "import __main__\n__main__.stand()\n";
        fs::write(modules.path().join("usekit_stands.py"), module).expect("a file");
        let script =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/python/program.py");
        let mut command = interpreter.command();
        command.arg(script).arg(modules.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.expect("they are piped");
        Self {
            outside: Outside::of(child.id()).expect("a child"),
            pipes: RefCell::new((input, BufReader::new(output))),
            child,
            _modules: modules,
        }
    }

    /// Has the first thread keep the interpreter's lock; gives the thread's number. It lets go of it for ever after `release`.
    pub(crate) fn hold(&self) -> u64 {
        let mut pipes = self.pipes.borrow_mut();
        writeln!(pipes.0, "hold").expect("it listens");
        let mut line = String::new();
        pipes.1.read_line(&mut line).expect("an answer");
        line.trim().parse().expect("a number")
    }

    /// Has it put code of the same shape where it has put some before; gives the place and the name.
    pub(crate) fn replace(&self) -> (u64, String) {
        let mut pipes = self.pipes.borrow_mut();
        writeln!(pipes.0, "replace").expect("it listens");
        let mut line = String::new();
        pipes.1.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Ends that.
    pub(crate) fn release(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).expect("a child");
    }

    /// The frames of its threads, by the threads' numbers: the answer comes when all stand.
    pub(crate) fn ask(&self) -> BTreeMap<u64, Vec<Said>> {
        let mut pipes = self.pipes.borrow_mut();
        writeln!(pipes.0).expect("it listens");
        let mut line = String::new();
        pipes.1.read_line(&mut line).expect("an answer");
        let said: BTreeMap<String, Value> = serde_json::from_str(&line).expect("JSON");
        let threads = said.into_iter().map(|(tid, frames)| {
            let frames = frames.as_array().expect("a list").iter().map(frame);
            (tid.parse().expect("a number"), frames.collect())
        });
        threads.collect()
    }
}

fn frame(frame: &Value) -> Said {
    let text = |index: usize| frame[index].as_str().expect("text").to_owned();
    Said {
        code: frame[0].as_u64().expect("an address"),
        name: text(1),
        file: text(2),
        first_line: frame[3].as_u64().expect("a line"),
        line: frame[4].as_u64(),
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
