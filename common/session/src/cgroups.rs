//! Control groups by their IDs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use host::procs;

use crate::targets::{cgroup_id, cgroup2_mount};

/// cgroup v2 directories by ID, which is their inode number.
pub fn paths() -> HashMap<u64, PathBuf> {
    let mut paths = HashMap::new();
    if let Some(mount) = cgroup2_mount() {
        collect(Path::new(&mount), &mut paths);
    }
    paths
}

/// The directories of the hierarchy that block I/O is charged in, by ID.
pub fn block_paths() -> HashMap<u64, PathBuf> {
    let Some(mount) = block_v1_mount() else {
        return paths();
    };
    let mut paths = HashMap::new();
    collect(&mount, &mut paths);
    paths
}

/// The ID of a directory of the hierarchy that block I/O is charged in: v2, or on older set-ups v1's `blkio`.
///
/// # Errors
///
/// When it is a directory of another kind, or none.
pub fn block_cgroup_id(path: &Path) -> Result<u64> {
    let Some(mount) = block_v1_mount() else {
        return cgroup_id(path);
    };
    let metadata = fs::metadata(path).with_context(|| format!("cgroup {}", path.display()))?;
    let there = fs::metadata(&mount).with_context(|| format!("cgroup {}", mount.display()))?;
    if metadata.dev() != there.dev() {
        bail!(
            "cgroup {}: block I/O is charged to cgroup v1 here; give a directory below {}",
            path.display(),
            mount.display()
        );
    }
    Ok(metadata.ino())
}

/// Where the v1 controller of block I/O is mounted; while it is, v2 knows nothing of block I/O.
fn block_v1_mount() -> Option<PathBuf> {
    let has = |options: &str| options.split(',').any(|option| option == "blkio");
    procs::mounted(|kind, options| kind == "cgroup" && has(options)).map(PathBuf::from)
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
