//! A cgroup for one process: with an account of its own, or with too little of something.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Gone when dropped, its process moved back.
pub(crate) struct Cgroup {
    path: PathBuf,
    pid: u32,
}

/// Files of a controller, and what is written to them.
type Limits<'a> = &'a [(&'a str, String)];

impl Cgroup {
    /// Moves process `pid` into one of v2.
    ///
    /// # Panics
    /// When v2 is not mounted.
    pub(crate) fn own(pid: u32) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mut mounts = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let root = mounts.find(|fields| fields[2] == "cgroup2");
        Self::below(Path::new(root.expect("cgroup v2")[1]), pid, &[])
    }

    /// Out of every 50 ms the process may run 5, and has these before others that want the CPU: the quota is all that it lacks.
    pub(crate) fn short_of_cpu(pid: u32) -> Self {
        let v1 = [
            ("cpu.cfs_period_us", 50_000),
            ("cpu.cfs_quota_us", 5_000),
            ("cpu.shares", 262_144),
        ];
        let v1 = v1.map(|(file, number)| (file, number.to_string()));
        let v2 = [("cpu.max", "5000 50000"), ("cpu.weight", "10000")];
        let v2 = v2.map(|(file, text)| (file, text.to_owned()));
        Self::limited(pid, ("cpu", &v1), ("cpu", &v2))
    }

    /// The process may run for a millisecond out of every second.
    pub(crate) fn without_cpu(pid: u32) -> Self {
        let v1 = [
            ("cpu.cfs_period_us", 1_000_000),
            ("cpu.cfs_quota_us", 1_000),
        ];
        let v1 = v1.map(|(file, number)| (file, number.to_string()));
        let v2 = [("cpu.max", "1000 1000000".to_owned())];
        Self::limited(pid, ("cpu", &v1), ("cpu", &v2))
    }

    /// So many bytes.
    pub(crate) fn short_of_memory(pid: u32, bytes: u64) -> Self {
        let v1 = [("memory.limit_in_bytes", bytes.to_string())];
        let v2 = [("memory.max", bytes.to_string())];
        Self::limited(pid, ("memory", &v1), ("memory", &v2))
    }

    /// A hundred reads a second from the disk below `dir`.
    ///
    /// The kernel charges the microseconds between a wakeup and the switch to an idle CPU to the woken thread as CPU time, so waits
    /// have to be much longer than those before "wall time minus CPU time" is a truth to compare with.
    pub(crate) fn on_a_slow_disk(pid: u32, dir: &Path) -> Self {
        let device = whole_disk(dir);
        let v1 = [("blkio.throttle.read_iops_device", format!("{device} 100"))];
        let v2 = [("io.max", format!("{device} riops=100"))];
        Self::limited(pid, ("blkio", &v1), ("io", &v2))
    }

    /// By the controller of v1, if it is there.
    ///
    /// # Panics
    /// When neither can be written.
    fn limited(pid: u32, (v1, v1_limits): (&str, Limits), (v2, v2_limits): (&str, Limits)) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        if root.join(v1).join(v1_limits[0].0).exists() {
            return Self::below(&root.join(v1), pid, v1_limits);
        }
        // Refused when it is on already.
        let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{v2}"));
        Self::below(root, pid, v2_limits)
    }

    fn below(root: &Path, pid: u32, limits: Limits) -> Self {
        let path = root.join(format!("usekit-test-{pid}"));
        // One that a killed test left is empty.
        let _ = fs::remove_dir(&path);
        fs::create_dir(&path).expect("a cgroup can be made");
        let cgroup = Self { path, pid };
        let moves = ("cgroup.procs", pid.to_string());
        for (file, text) in limits.iter().chain([&moves]) {
            let written = fs::write(cgroup.path.join(file), text);
            written.unwrap_or_else(|error| panic!("{text} to {file}: {error}"));
        }
        cgroup
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// Number of periods in which a quota did not suffice, by the controller's own account.
    pub(crate) fn throttled_periods(&self) -> u64 {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).expect("an account");
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let line = lines.find(|(field, _)| *field == "nr_throttled");
        let periods = line.and_then(|(_, value)| value.parse().ok());
        periods.unwrap_or_else(|| panic!("no nr_throttled in {stat}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let parent = self.path.parent().expect("below the root");
        let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

/// Directory in sysfs of the disk, not partition, that a directory lies on.
fn disk_below(dir: &Path) -> Option<PathBuf> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let mut disk = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if disk.join("partition").exists() {
        disk.pop();
    }
    Some(disk)
}

/// `MAJOR:MINOR`
fn whole_disk(dir: &Path) -> String {
    let disk = disk_below(dir).expect("a block device");
    let number = fs::read_to_string(disk.join("dev")).expect("a device number");
    number.trim().to_owned()
}

/// `None` when a directory is on no disk that has requests.
pub(crate) fn disk_name(dir: &Path) -> Option<String> {
    let disk = disk_below(dir)?;
    let name = disk.file_name()?.to_str()?.to_owned();
    disk.join("mq").exists().then_some(name)
}
