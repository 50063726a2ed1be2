//! A CPU that is rationed: one process's time limited by the cpu controller.

use std::fs;
use std::path::{Path, PathBuf};

/// Out of every `PERIOD_US` the process may run `QUOTA_US`: less than even a busy machine gives it.
const PERIOD_US: u32 = 50_000;
const QUOTA_US: u32 = 5_000;

/// A cgroup with a quota; gone when dropped, its process moved back.
pub(crate) struct CpuQuota {
    cgroup: PathBuf,
    pid: u32,
}

impl CpuQuota {
    /// Limits process `pid`.
    ///
    /// # Panics
    /// When no cpu controller can be written.
    pub(crate) fn new(pid: u32) -> Self {
        let name = format!("usekit-test-{pid}");
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let is_v2 = !v1.join("cpu.cfs_quota_us").exists();
        let cgroup = if is_v2 {
            let v2 = Path::new("/sys/fs/cgroup");
            // Refused when it is on already.
            let _ = fs::write(v2.join("cgroup.subtree_control"), "+cpu");
            v2.join(name)
        } else {
            v1.join(name)
        };
        fs::create_dir(&cgroup).expect("a cgroup can be made");
        let quota = Self { cgroup, pid };
        if is_v2 {
            quota.write("cpu.max", &format!("{QUOTA_US} {PERIOD_US}"));
        } else {
            quota.write("cpu.cfs_period_us", &PERIOD_US.to_string());
            quota.write("cpu.cfs_quota_us", &QUOTA_US.to_string());
        }
        quota.write("cgroup.procs", &pid.to_string());
        quota
    }

    /// Number of periods in which the quota did not suffice, by the controller's own account.
    pub(crate) fn throttled_periods(&self) -> u64 {
        let stat = fs::read_to_string(self.cgroup.join("cpu.stat")).expect("an account");
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let line = lines.find(|(field, _)| *field == "nr_throttled");
        line.and_then(|(_, value)| value.parse().ok())
            .unwrap_or_else(|| panic!("no nr_throttled in {stat}"))
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.cgroup.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        let parent = self.cgroup.parent().expect("below the root");
        let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.cgroup);
    }
}
