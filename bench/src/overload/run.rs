//! Runs of one tool.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Args;
use crate::examiner::Examiner;
use crate::process::ordinary;

pub(crate) const OURS: [&str; 8] = [
    "offcputime",
    "runqlat",
    "biolatency",
    "profile",
    "lockstat",
    "pressure",
    "syscount",
    "why",
];

/// Length of a tool's window.
pub(crate) const WINDOW: Duration = Duration::from_secs(2);

/// A tool, or none, and the worst that was seen of it.
pub(crate) struct Run {
    pub(crate) name: String,
    command: Vec<String>,
    pub(crate) is_ours: bool,
    pub(crate) worst: Times,
}

/// Times of one run, or the largest of several runs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// From exec until it says that it traces; `None`: it does not say so.
    pub(crate) begin: Option<Duration>,
    /// Beyond begin and window.
    pub(crate) late: Option<Duration>,
    /// See [`crate::watcher::Watcher::longest`].
    pub(crate) others: Duration,
}

impl Times {
    pub(crate) fn larger_of(self, other: Self) -> Self {
        Self {
            begin: self.begin.max(other.begin),
            late: self.late.max(other.late),
            others: self.others.max(other.others),
        }
    }
}

/// Nothing, then what was asked for.
pub(crate) fn all(args: &Args) -> Vec<Run> {
    let mut runs = vec![Run::new("(none)".into(), Vec::new(), false)];
    for tool in &args.tool {
        runs.push(Run::new(tool.clone(), command(&args.ours_dir, tool), true));
    }
    for tool in ["offcputime", "runqlat"].iter().filter(|_| args.theirs) {
        runs.push(Run::new(
            format!("libbpf-tools {tool}"),
            command(&args.theirs_dir, tool),
            false,
        ));
    }
    runs
}

fn command(dir: &Path, tool: &str) -> Vec<String> {
    let program = dir.join(tool).display().to_string();
    let window = WINDOW.as_secs().to_string();
    match tool {
        "runqlat" | "biolatency" | "pressure" | "syscount" => vec![program, window, "1".into()],
        _ => vec![program, window],
    }
}

impl Run {
    fn new(name: String, command: Vec<String>, is_ours: bool) -> Self {
        Self {
            name,
            command,
            is_ours,
            worst: Times::default(),
        }
    }

    /// Once; what others had to wait is not known here.
    pub(crate) fn go(&self) -> Result<Times> {
        let Some((program, arguments)) = self.command.split_first() else {
            thread::sleep(WINDOW);
            return Ok(Times::default());
        };
        let began = Instant::now();
        let mut child = ordinary(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {program}"))?;
        let examiner = Examiner::start(child.id());
        let said = child.stderr.take().context("its stderr is piped")?;
        let mut traces = None;
        for line in BufReader::new(said).lines() {
            if line?.contains(": tracing") && traces.is_none() {
                traces = Some(began.elapsed());
                examiner.begin();
            }
        }
        child.wait()?;
        let late = began
            .elapsed()
            .saturating_sub(traces.unwrap_or_default() + WINDOW);
        Ok(Times {
            begin: traces,
            late: Some(late),
            ..Times::default()
        })
    }
}
