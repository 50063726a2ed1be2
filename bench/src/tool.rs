//! A tool while it runs.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::machine::field;

/// What a tool left behind.
pub(crate) struct End {
    /// The peak of its memory, in bytes.
    pub(crate) peak_memory: u64,
    pub(crate) output: String,
}

/// A tool at work. Dropping it kills it.
pub(crate) struct Tool {
    child: Child,
    stdout: File,
    stderr: File,
    /// Just before it was executed.
    pub(crate) started: Instant,
}

impl Tool {
    pub(crate) fn start(program: &Path, args: &[String]) -> Result<Self> {
        // Files: a pipe that nobody reads could fill up and stop the tool.
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let started = Instant::now();
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self {
            child,
            stdout,
            stderr,
            started,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error, with the tool's last words, when it has ended by itself.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("ended with {status}: {}", self.last_words()),
            None => Ok(()),
        }
    }

    /// Asks for the report and waits for the end.
    pub(crate) fn finish(mut self) -> Result<End> {
        let pid = i32::try_from(self.pid()).context("a PID that is none")?;
        let mut peak_memory = peak(pid).unwrap_or_default();
        // SAFETY: sends a signal, touches no memory; the child is not reaped yet, so the PID is its.
        unsafe { libc::kill(pid, libc::SIGINT) };
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            // Resolving and printing comes last, so the peak may too; a zombie has none to show.
            peak_memory = peak(pid).unwrap_or(peak_memory);
            match self.child.try_wait()? {
                Some(status) if status.success() || is_interrupted(status) => {
                    let output = written(&mut self.stdout);
                    return Ok(End {
                        peak_memory,
                        output,
                    });
                }
                Some(status) => bail!("ended with {status}: {}", self.last_words()),
                None if Instant::now() > deadline => bail!("does not end after SIGINT"),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn last_words(&mut self) -> String {
        written(&mut self.stderr).trim().to_owned()
    }
}

/// What was written to a file; what cannot be read is simply not there.
fn written(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Bytes.
fn peak(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(field(&status, "VmHWM:")? * 1024)
}

/// perf ends by the signal that it was sent, once it is done.
fn is_interrupted(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGINT)
}

/// Tools that are at work at once.
pub(crate) struct Tools(Vec<Tool>);

impl Tools {
    pub(crate) fn start(commands: &[(PathBuf, Vec<String>)]) -> Result<Self> {
        let started = commands
            .iter()
            .map(|(program, args)| Tool::start(program, args));
        Ok(Self(started.collect::<Result<_>>()?))
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Tool::pid).collect()
    }

    /// Time since just before the first was executed.
    pub(crate) fn age(&self) -> Duration {
        self.0
            .first()
            .map_or(Duration::ZERO, |tool| tool.started.elapsed())
    }

    /// The same as [`Tool::must_run`] of each.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(Tool::must_run)
    }

    /// The same as [`Tool::finish`], one after the other: their memory together, and what all of them wrote.
    pub(crate) fn finish(self) -> Result<End> {
        let mut all = End {
            peak_memory: 0,
            output: String::new(),
        };
        for tool in self.0 {
            let end = tool.finish()?;
            all.peak_memory += end.peak_memory;
            all.output += &end.output;
        }
        Ok(all)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // After `finish` there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
