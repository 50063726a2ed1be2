//! Looks at a tool that should have begun or ended: which of its threads is kept, and where in the kernel.
//!
//! It sleeps until then. Whoever looked all the time, with the real-time priority that it takes to be let look, would give the
//! scheduler so many occasions that nothing is kept any more.

use std::fs;
use std::io::{self, Write};
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
                let _ = describe(
                    pid,
                    &format!("not begun after {:.2} s", began.elapsed().as_secs_f64()),
                );
            }
            let began = Instant::now();
            let mut wait = WINDOW + PERIOD;
            while begins.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let late = began.elapsed().saturating_sub(WINDOW);
                let _ = describe(
                    pid,
                    &format!("not ended {:.2} s after the window", late.as_secs_f64()),
                );
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

/// Writes to stderr where threads of a process and of its children are.
fn describe(pid: u32, title: &str) -> io::Result<()> {
    let mut text = format!("{title}:\n");
    describe_process(pid, &mut text);
    if text.lines().count() == 1 {
        text += "  it is gone; whoever waits for it:\n";
        describe_process(std::process::id(), &mut text);
    }
    io::stderr().write_all(text.as_bytes())
}

fn describe_process(pid: u32, text: &mut String) {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let path = thread.path();
        let read = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
        *text += &describe_thread(&path, &read("stat"), &read("stack"));
        for child in read("children").split_whitespace() {
            if let Ok(child) = child.parse() {
                describe_process(child, text);
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
        "  {} {name} {} rt {} ticks {}+{}: {}\n",
        path.display(),
        field(3),
        field(40),
        field(14),
        field(15),
        functions.join(" < ")
    )
}
