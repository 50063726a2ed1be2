//! Control groups by their IDs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::targets::cgroup2_mount;

/// cgroup v2 directories by ID, which is their inode number.
pub fn paths() -> HashMap<u64, PathBuf> {
    let mut paths = HashMap::new();
    if let Some(mount) = cgroup2_mount() {
        collect(Path::new(&mount), &mut paths);
    }
    paths
}

fn collect(directory: &Path, paths: &mut HashMap<u64, PathBuf>) {
    if let Ok(metadata) = fs::metadata(directory) {
        paths.insert(metadata.ino(), directory.to_owned());
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), paths);
        }
    }
}
