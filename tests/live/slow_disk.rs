//! A disk that takes its time: reads of one process limited by the block controller.
//!
//! The kernel charges the microseconds between a wakeup and the switch to an idle CPU to the woken thread as CPU time,
//! so waits have to be much longer than those before "wall time minus CPU time" is a truth to compare with.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads per second.
const READS: u32 = 100;

/// A cgroup with a limit; gone when dropped, its process moved back.
pub(crate) struct SlowDisk {
    cgroup: PathBuf,
    pid: u32,
}

impl SlowDisk {
    /// Limits what process `pid` reads from the disk below `dir`.
    ///
    /// # Panics
    /// When no block controller can be written.
    pub(crate) fn new(pid: u32, dir: &Path) -> Self {
        let device = whole_disk(dir);
        let name = format!("usekit-test-{pid}");
        let v1 = Path::new("/sys/fs/cgroup/blkio");
        let (cgroup, file, limit) = if v1.join("blkio.throttle.read_iops_device").exists() {
            (
                v1.join(name),
                "blkio.throttle.read_iops_device",
                format!("{device} {READS}"),
            )
        } else {
            let v2 = Path::new("/sys/fs/cgroup");
            // Refused when it is on already.
            let _ = fs::write(v2.join("cgroup.subtree_control"), "+io");
            (v2.join(name), "io.max", format!("{device} riops={READS}"))
        };
        fs::create_dir(&cgroup).expect("a cgroup can be made");
        let disk = Self { cgroup, pid };
        fs::write(disk.cgroup.join(file), limit).expect("the block controller takes a limit");
        fs::write(disk.cgroup.join("cgroup.procs"), pid.to_string()).expect("the process moves");
        disk
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let parent = self.cgroup.parent().expect("below the root");
        let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.cgroup);
    }
}

/// `MAJOR:MINOR` of the disk that a directory lies on; limits are set on disks, not on partitions.
fn whole_disk(dir: &Path) -> String {
    let device = fs::metadata(dir).expect("the directory exists").dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).expect("a block device");
    if sys.join("partition").exists() {
        let disk = sys.parent().expect("a partition's disk");
        return fs::read_to_string(disk.join("dev"))
            .expect("a device number")
            .trim()
            .into();
    }
    format!("{major}:{minor}")
}

/// The name of the disk, not partition, that a directory lies on; `None` when it is on none that has requests.
pub(crate) fn disk_name(dir: &Path) -> Option<String> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let mut sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if sys.join("partition").exists() {
        sys.pop();
    }
    let name = sys.file_name()?.to_str()?.to_owned();
    sys.join("mq").exists().then_some(name)
}
