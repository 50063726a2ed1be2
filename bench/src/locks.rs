//! The load for locks: two threads on one CPU that run into each other's mutex.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::machine::{self, field};
use crate::running::Load;

const PROGRAM: &str = include_str!("contended.c");

/// The program. Dropping it ends it.
pub(crate) struct LockLoad {
    program: Child,
    _dir: tempfile::TempDir,
}

impl LockLoad {
    /// Starts it, pinned to `cpu`, and waits until its threads wait for each other.
    pub(crate) fn start(cpu: usize) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let program = dir.path().join("contended");
        compile(PROGRAM, &program, &["-O1", "-pthread"])?;
        let program = Command::new("taskset")
            .args(["-c", &cpu.to_string()])
            .arg(program)
            .stdin(Stdio::null())
            .spawn()
            .context("start taskset (package util-linux)")?;
        let mut load = Self { program, _dir: dir };
        while load.events()? < 1000 {
            ensure!(load.program.try_wait()?.is_none(), "the load ended");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(load)
    }
}

impl Load for LockLoad {
    fn pid(&self) -> u32 {
        self.program.id()
    }

    /// It gives up its CPU for nothing but the mutex; `sched_yield` does not count as voluntary.
    fn events(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in self.threads() {
            let status =
                fs::read_to_string(thread.join("status")).context("the load ended early")?;
            sum += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        }
        Ok(sum)
    }

    fn events_around(&self) -> Result<u64> {
        self.events()
    }

    fn threads(&self) -> Vec<PathBuf> {
        machine::threads(self.program.id())
    }
}

impl Drop for LockLoad {
    fn drop(&mut self) {
        // It ends in no other way.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Makes a program of a C source.
pub(crate) fn compile(source: &str, program: &Path, flags: &[&str]) -> Result<()> {
    let file = program.with_extension("c");
    fs::write(&file, source)?;
    let status = Command::new("cc")
        .args(flags)
        .arg("-o")
        .arg(program)
        .arg(&file)
        .status()
        .context("run cc")?;
    ensure!(status.success(), "cc failed");
    Ok(())
}
