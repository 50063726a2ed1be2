//! Too little memory for one process: a cgroup with a limit.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup with a limit; gone when dropped, its process moved back.
pub(crate) struct SmallMemory {
    cgroup: PathBuf,
    pid: u32,
}

impl SmallMemory {
    /// Limits process `pid` to so many bytes.
    ///
    /// # Panics
    /// When no memory controller can be written.
    pub(crate) fn new(pid: u32, bytes: u64) -> Self {
        let name = format!("usekit-test-{pid}");
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (cgroup, file) = if v1.join("memory.limit_in_bytes").exists() {
            (v1.join(name), "memory.limit_in_bytes")
        } else {
            let v2 = Path::new("/sys/fs/cgroup");
            // Refused when it is on already.
            let _ = fs::write(v2.join("cgroup.subtree_control"), "+memory");
            (v2.join(name), "memory.max")
        };
        fs::create_dir(&cgroup).expect("a cgroup can be made");
        let memory = Self { cgroup, pid };
        fs::write(memory.cgroup.join(file), bytes.to_string()).expect("a limit is taken");
        fs::write(memory.cgroup.join("cgroup.procs"), pid.to_string()).expect("the process moves");
        memory
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        let parent = self.cgroup.parent().expect("below the root");
        let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.cgroup);
    }
}
