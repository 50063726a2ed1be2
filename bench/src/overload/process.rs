//! Processes with the ordinary class, in sessions of their own, made by one that has real-time priority.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Real-time priority for this process: above that of all loads but real-time ones of the highest.
pub(crate) fn be_first() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 98 };
    // SAFETY: reads one sched_param; 0 is this process.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const param) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// chrt leaves the real-time class in the process that becomes the program: one that had left it before exec might never get
/// there.
pub(crate) fn ordinary(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("chrt");
    command.args(["--other", "0", "setsid"]).arg(program);
    command.stdin(Stdio::null());
    command
}

/// A load, until dropped.
pub(crate) struct Load(Child);

impl Load {
    /// `name` is a stressor and its number of workers, as in `epoll=2`.
    pub(crate) fn start(name: &str) -> Result<Self> {
        let (stressor, workers) = name.split_once('=').context("a load is NAME=N")?;
        let child = ordinary("stress-ng")
            // Should we be killed, it ends all the same.
            .args([
                "--quiet",
                "--timeout",
                "120",
                &format!("--{stressor}"),
                workers,
            ])
            .spawn()
            .context("start stress-ng")?;
        Ok(Self(child))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Its workers are children of children, with names of their own.
        let _ = Command::new("pkill").args(["-KILL", "^stress-ng"]).status();
        let _ = self.0.wait();
    }
}
