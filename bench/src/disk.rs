//! The load for disks: fio reads and writes a loop device over memory, one request at a time.
//!
//! The device's worker is held on fio's CPU. Left alone it runs on whichever is idle, and what a wakeup across CPUs takes varies with
//! the idle states, and with the hypervisor, by a factor of six from one second to the next; what a tracer adds is below 10 %.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::running::Load;
use crate::workers::WorkersOn;

/// Longer than any measurement lasts.
const FOREVER: &str = "--runtime=3600";

/// fio and its disk. Dropping it ends both.
pub(crate) struct DiskLoad {
    fio: Option<Child>,
    device: String,
    _dir: tempfile::TempDir,
    _workers: WorkersOn,
}

impl DiskLoad {
    /// Starts it, pinned to `cpu`.
    pub(crate) fn start(cpu: usize) -> Result<Self> {
        let dir = tempfile::tempdir_in("/dev/shm").context("make a directory in memory")?;
        let file = dir.path().join("disk");
        fs::File::create(&file)?.set_len(64 << 20)?;
        let losetup = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&file)
            .output()
            .context("start losetup (package mount)")?;
        ensure!(losetup.status.success(), "losetup finds no loop device");
        let mut load = Self {
            fio: None,
            device: String::from_utf8(losetup.stdout)?.trim().to_owned(),
            _dir: dir,
            _workers: WorkersOn::new(cpu)?,
        };
        let name = load.device.trim_start_matches("/dev/");
        // Settings outlive what was attached before.
        fs::write(format!("/sys/block/{name}/queue/iostats"), "1")?;
        fs::write(format!("/sys/block/{name}/queue/scheduler"), "none")?;
        let cpu = cpu.to_string();
        let target = format!("--filename={}", load.device);
        let fio = Command::new("taskset")
            .args(["-c", &cpu, "fio", "--name=load", "--rw=randrw", "--bs=4k"])
            .args([
                "--direct=1",
                "--ioengine=psync",
                "--time_based",
                FOREVER,
                "--thread",
                &target,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("start fio (package fio)")?;
        load.fio = Some(fio);
        while load.events()? < 1000 {
            let over = load.fio.as_mut().and_then(|fio| fio.try_wait().ok()?);
            ensure!(over.is_none(), "fio ended (package fio)");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(load)
    }
}

impl Load for DiskLoad {
    fn pid(&self) -> u32 {
        self.fio.as_ref().map_or(0, Child::id)
    }

    fn events(&self) -> Result<u64> {
        let name = self.device.trim_start_matches("/dev/");
        completed(&fs::read_to_string(format!("/sys/block/{name}/stat"))?)
            .context("a disk without statistics")
    }

    fn threads(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn events_around(&self) -> Result<u64> {
        let stats = fs::read_to_string("/proc/diskstats")?;
        let disks = stats.lines().filter_map(|line| {
            let (_, rest) = line.split_at_checked(13)?;
            let (name, fields) = rest.trim_start().split_once(' ')?;
            // Partitions count for their disks already.
            let is_disk = fs::exists(format!("/sys/block/{name}/mq")).unwrap_or(false);
            is_disk.then(|| completed(fields))?
        });
        Ok(disks.sum())
    }
}

/// Requests read and written, of the fields of a `stat` file.
fn completed(fields: &str) -> Option<u64> {
    let numbers: Vec<u64> = fields
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    Some(numbers.first()? + numbers.get(4)?)
}

impl Drop for DiskLoad {
    fn drop(&mut self) {
        if let Some(fio) = &mut self.fio {
            // Already gone is as good.
            let _ = fio.kill();
            let _ = fio.wait();
        }
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

#[cfg(test)]
mod tests {
    use super::completed;

    #[test]
    fn reads_and_writes_are_counted() {
        assert_eq!(completed("  10 1 2 3  20 5 6 7 0 1 2"), Some(30));
        assert_eq!(completed("10 1"), None);
    }
}
