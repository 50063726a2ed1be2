//! One run of a program: how long, how much CPU, and how much memory at most.
//!
//! The kernel counts what a process was before exec as its memory too, so programs are started by a small process: this
//! program once more, which has read nothing yet.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// First argument of the small process.
pub(crate) const MEASURE: &str = "--measure-one";

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) seconds: f64,
    /// User and system.
    pub(crate) cpu_seconds: f64,
    /// Largest resident size, bytes.
    pub(crate) peak: u64,
}

/// Runs a command with its standard output in a file.
pub(crate) fn run(command: &[String], output: &Path) -> Result<Run> {
    let own = std::env::current_exe().context("find this program")?;
    let result = Command::new(own)
        .arg(MEASURE)
        .arg(output)
        .args(command)
        .output()
        .context("start this program again")?;
    let said = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.success(), "{}: {}", command[0], said.trim());
    let text = String::from_utf8_lossy(&result.stdout).into_owned();
    let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
    let [seconds, cpu_seconds, peak] = numbers[..] else {
        bail!("{}: three numbers expected: {text}", command[0]);
    };
    Ok(Run {
        seconds,
        cpu_seconds,
        peak: peak as u64,
    })
}

/// What the small process does: prints seconds, CPU seconds and bytes.
pub(crate) fn measure_one(arguments: &[String]) -> Result<()> {
    let [output, program, args @ ..] = arguments else {
        bail!("a file and a command are needed");
    };
    let file = File::create(output).context("make an output file")?;
    let begin = Instant::now();
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::null())
        .spawn();
    let child = child.with_context(|| format!("start {program}"))?;
    let pid = libc::pid_t::try_from(child.id()).context("a process ID")?;
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: waits for our own child and fills two locals.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(waited == pid, "wait: {}", io::Error::last_os_error());
    ensure!(status == 0, "ended with status {status:#x}");
    let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu_seconds = time(usage.ru_utime) + time(usage.ru_stime);
    writeln!(
        io::stdout(),
        "{seconds} {cpu_seconds} {}",
        usage.ru_maxrss * 1024
    )?;
    Ok(())
}
