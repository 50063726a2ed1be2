//! Looks at a tool that should have begun or ended: which of its threads is kept, and where in the kernel.
//!
//! It sleeps until then. Whoever looked all the time, with the real-time priority that it takes to be let look, would give the
//! scheduler so many occasions that nothing is kept any more.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::run::WINDOW;

/// The first look is this long after exec or the window's end, and the others are as far apart.
const PERIOD: Duration = Duration::from_millis(1500);

/// Looks, until dropped.
pub(crate) struct Examiner {
    begun: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Examiner {
    pub(crate) fn start(pid: u32) -> Self {
        let (begun, begins) = mpsc::channel();
        let thread = thread::spawn(move || {
            let began = Instant::now();
            while begins.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                eprintln!("not begun after {:.2} s:", began.elapsed().as_secs_f64());
                describe(pid);
            }
            let began = Instant::now();
            let mut wait = WINDOW + PERIOD;
            while begins.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let late = began.elapsed().saturating_sub(WINDOW).as_secs_f64();
                eprintln!("not ended {late:.2} s after the window:");
                describe(pid);
                wait = PERIOD;
            }
        });
        Self {
            begun: Some(begun),
            thread: Some(thread),
        }
    }

    /// The window has begun.
    pub(crate) fn begin(&self) {
        if let Some(begun) = &self.begun {
            let _ = begun.send(());
        }
    }
}

impl Drop for Examiner {
    fn drop(&mut self) {
        self.begun = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Threads of a process and of its children.
fn describe(pid: u32) {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return eprintln!("  {pid} is gone");
    };
    for thread in threads.flatten() {
        let path = thread.path();
        let read = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
        eprintln!(
            "  {}",
            describe_thread(&path, &read("stat"), &read("stack"))
        );
        for child in read("children").split_whitespace() {
            if let Ok(child) = child.parse() {
                describe(child);
            }
        }
    }
}

/// Name, state, real-time priority, time on CPUs so far, and functions of the kernel.
fn describe_thread(path: &Path, stat: &str, stack: &str) -> String {
    let name = stat
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplit_once(") "));
    let (name, rest) = name.unwrap_or_default();
    // From the state on, which is field 3 of proc_pid_stat(5).
    let fields: Vec<&str> = rest.split(' ').collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or("?");
    let functions: Vec<&str> = stack
        .lines()
        .filter_map(|line| line.split_once("] ")?.1.split('+').next())
        .collect();
    format!(
        "{} {name} {} rt {} ticks {}+{}: {}",
        path.display(),
        field(3),
        field(40),
        field(14),
        field(15),
        functions.join(" < ")
    )
}
