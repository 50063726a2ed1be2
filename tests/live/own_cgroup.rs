//! A cgroup v2 directory for one process.

use std::fs;
use std::path::{Path, PathBuf};

/// Gone when dropped, its process moved back.
pub(crate) struct OwnCgroup {
    pub(crate) path: PathBuf,
    pid: u32,
}

impl OwnCgroup {
    /// Moves process `pid` into a cgroup of its own.
    ///
    /// # Panics
    /// When cgroup v2 is not mounted.
    pub(crate) fn new(pid: u32) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mut mounts = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let root = mounts.find(|fields| fields[2] == "cgroup2");
        let path = Path::new(root.expect("cgroup v2")[1]).join(format!("usekit-test-{pid}"));
        fs::create_dir(&path).expect("a cgroup can be made");
        let own = Self { path, pid };
        fs::write(own.path.join("cgroup.procs"), pid.to_string()).expect("the process moves");
        own
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let parent = self.path.parent().expect("below the root");
        let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.path);
    }
}
