//! The loads: for switches `perf bench sched pipe`, two tasks on one CPU that hand each other a byte for ever; for disks see
//! `disk.rs`, for locks `locks.rs`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::disk::DiskLoad;
use crate::locks::LockLoad;
use crate::machine::{self, field};
use crate::running::Load;

/// More round trips than any measurement lasts.
const FOREVER: &str = "2000000000";

/// What there is much of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Switches between two processes.
    Processes,
    /// Switches between two threads, which have one PID in common, for `-p`.
    Threads,
    /// Requests to a disk.
    Disk,
    /// Waits for a mutex.
    Locks,
}

impl Kind {
    /// One of them.
    pub(crate) fn event(self) -> &'static str {
        match self {
            Self::Processes | Self::Threads => "context switch",
            Self::Disk => "I/O",
            Self::Locks => "contended wait",
        }
    }

    /// Starts such a load on `cpu`; dropping it ends it.
    pub(crate) fn start(self, cpu: usize) -> Result<Box<dyn Load>> {
        Ok(match self {
            Self::Processes | Self::Threads => Box::new(Pipe::start(self, cpu)?),
            Self::Disk => Box::new(DiskLoad::start(cpu)?),
            Self::Locks => Box::new(LockLoad::start(cpu)?),
        })
    }
}

/// Two tasks and a pipe.
struct Pipe {
    perf: Child,
    second: Option<u32>,
    statuses: Vec<PathBuf>,
}

impl Pipe {
    /// Starts it, pinned to `cpu`, and waits until both tasks are there.
    fn start(tasks: Kind, cpu: usize) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args([
            "-c",
            &cpu.to_string(),
            "perf",
            "bench",
            "sched",
            "pipe",
            "-l",
            FOREVER,
        ]);
        if tasks == Kind::Threads {
            command.arg("-T");
        }
        let perf = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("start taskset (package util-linux)")?;
        let mut load = Self {
            perf,
            second: None,
            statuses: Vec::new(),
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while load.statuses.len() < 2 {
            if let Some(status) = load.perf.try_wait()? {
                bail!("perf bench sched pipe ended with {status} (package linux-perf)");
            }
            if Instant::now() > deadline {
                bail!("perf bench sched pipe did not start its two tasks");
            }
            thread::sleep(Duration::from_millis(20));
            load.find(tasks)?;
        }
        Ok(load)
    }

    /// Looks for the two tasks that exchange the byte.
    fn find(&mut self, tasks: Kind) -> Result<()> {
        let pid = self.perf.id();
        match tasks {
            Kind::Threads => {
                self.statuses = fs::read_dir(format!("/proc/{pid}/task"))?
                    .filter_map(|entry| Some(entry.ok()?.path().join("status")))
                    // The main thread only waits for the other two.
                    .filter(|path| !path.starts_with(format!("/proc/{pid}/task/{pid}")))
                    .collect();
            }
            Kind::Processes | Kind::Disk | Kind::Locks => {
                self.second = child_of(pid)?;
                if let Some(second) = self.second {
                    let status = |pid| PathBuf::from(format!("/proc/{pid}/status"));
                    self.statuses = vec![status(pid), status(second)];
                }
            }
        }
        Ok(())
    }
}

impl Load for Pipe {
    /// The PID that has both tasks (`Threads`) or the first of them.
    fn pid(&self) -> u32 {
        self.perf.id()
    }

    fn events(&self) -> Result<u64> {
        let mut sum = 0;
        for path in &self.statuses {
            let status = fs::read_to_string(path).context("the load ended early")?;
            sum += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
            sum += field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
        }
        Ok(sum)
    }

    fn events_around(&self) -> Result<u64> {
        machine::context_switches()
    }

    fn threads(&self) -> Vec<PathBuf> {
        let dir = |path: &PathBuf| Some(path.parent()?.to_owned());
        let mut threads: Vec<_> = self.statuses.iter().filter_map(dir).collect();
        if self.second.is_none() {
            // The main thread waits for the other two.
            threads.push(PathBuf::from(format!("/proc/{0}/task/{0}", self.perf.id())));
        }
        threads
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(second) = self.second.and_then(|pid| i32::try_from(pid).ok()) {
            // SAFETY: sends a signal, touches no memory. The parent lives and has not reaped it, so
            // the PID is still that child's.
            unsafe { libc::kill(second, libc::SIGKILL) };
        }
        // Already gone is as good.
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

fn child_of(parent: u32) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that is gone by now is not ours.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if field(&status, "PPid:") == Some(parent.into()) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
