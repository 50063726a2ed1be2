//! Control groups by their IDs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use host::procs;
use profile::escape::terminal;
use profile::text::cut_start;

use crate::targets::{cgroup_id, cgroup2_mount};

/// Before a group's path.
const HEADING: &str = "cgroup = ";

/// cgroup v2 directories by ID, which is their inode number.
pub fn paths() -> HashMap<u64, PathBuf> {
    cgroup2_mount().map_or_else(HashMap::new, |mount| by_id(Path::new(&mount)))
}

/// The directories of the hierarchy that block I/O is charged in, by ID.
pub fn block_paths() -> HashMap<u64, PathBuf> {
    v1_mount("blkio").map_or_else(paths, |mount| by_id(&mount))
}

/// Heading of a group by its ID, escaped: `cgroup = /sys/fs/cgroup/a`, or why it has no path. A path that is wider than `width`
/// columns leaves for it has its beginning cut: its end says more.
pub fn heading(id: u64, paths: &HashMap<u64, PathBuf>, width: usize) -> String {
    let name = match paths.get(&id) {
        Some(path) => {
            let path = path.display().to_string();
            cut_start(&terminal(&path), width.saturating_sub(HEADING.len()))
        }
        None if paths.is_empty() => format!("{id} (cgroup v2 is not mounted here)"),
        None => format!("{id} (removed, or outside this mount)"),
    };
    format!("{HEADING}{name}")
}

/// The ID of a directory of the hierarchy that block I/O is charged in: v2, or on older set-ups v1's `blkio`.
///
/// # Errors
///
/// When it is a directory of another kind, or none.
pub fn block_cgroup_id(path: &Path) -> Result<u64> {
    let Some(mount) = v1_mount("blkio") else {
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

/// Mount of v1 that has a controller; while there is one, v2 knows nothing of that.
pub(crate) fn v1_mount(controller: &str) -> Option<PathBuf> {
    let has = |options: &str| options.split(',').any(|option| option == controller);
    procs::mounted(|kind, options| kind == "cgroup" && has(options)).map(PathBuf::from)
}

/// Looks whether a process, or a thread, is in a directory of v2 or below.
pub fn holds(directory: &Path, tid: u32) -> bool {
    let lines = fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap_or_default();
    // Asked for every thread of a machine.
    static MOUNT: OnceLock<PathBuf> = OnceLock::new();
    let mount = MOUNT.get_or_init(|| cgroup2_mount().unwrap_or_default().into());
    is_in(&lines, "", mount, directory)
}

/// Looks whether lines of a `/proc/PID/cgroup` are of this directory or below.
pub(crate) fn is_in(lines: &str, controller: &str, root: &Path, directory: &Path) -> bool {
    of(lines, controller, root).is_some_and(|path| path.starts_with(directory))
}

/// The directory that lines of a `/proc/PID/cgroup` are of: `ID:CONTROLLERS:PATH`; v2 has no name of a controller.
pub(crate) fn of(lines: &str, controller: &str, root: &Path) -> Option<PathBuf> {
    let mut fields = lines.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let is_it = |names: &str| names.split(',').any(|name| name == controller);
    let (_, path) = fields.find(|(controllers, _)| is_it(controllers))?;
    // Outside of a container's own part of the tree, where that is all that is seen.
    let is_outside = path.split('/').any(|part| part == "..");
    (!is_outside).then(|| root.join(path.trim_start_matches('/')))
}

/// Directories listed where nobody reads more.
pub const MOST_LISTED: usize = 4096;

/// Every directory below a root, the root first; at most so many.
pub fn directories(root: &Path, most: usize) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < most {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(below.map(|entry| entry.path()));
        next += 1;
    }
    found.truncate(most);
    found
}

/// Directories below a root by ID, which is their inode number.
pub fn by_id(root: &Path) -> HashMap<u64, PathBuf> {
    directories(root, usize::MAX)
        .into_iter()
        .filter_map(|path| Some((fs::metadata(&path).ok()?.ino(), path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_process_have_a_directory_in_each_hierarchy() {
        let lines = "4:cpuset:/a\n3:cpu,cpuacct:/pod/app\n0::/system.slice\n";
        let path = |controller| of(lines, controller, Path::new("/cg"));
        assert_eq!(path("cpu"), Some("/cg/pod/app".into()));
        assert_eq!(path(""), Some("/cg/system.slice".into()));
        assert_eq!(path("memory"), None);
        assert_eq!(of("0::/../other\n", "", Path::new("/cg")), None);
        assert!(is_in(lines, "cpu", Path::new("/cg"), Path::new("/cg/pod")));
        assert!(!is_in(lines, "cpu", Path::new("/cg"), Path::new("/cg/po")));
    }

    #[test]
    fn a_group_is_named_by_its_path_or_told_why_it_has_none() {
        let paths = HashMap::from([(7, "/sys/fs/cgroup/a\nb".into())]);
        let said = |id, paths| [80, 20].map(|width| heading(id, paths, width));
        let path = [r"cgroup = /sys/fs/cgroup/a\x0ab", r"cgroup = …oup/a\x0ab"];
        assert_eq!(said(7, &paths), path);
        assert_eq!(
            said(8, &paths),
            ["cgroup = 8 (removed, or outside this mount)"; 2]
        );
        let nothing = "cgroup = 8 (cgroup v2 is not mounted here)";
        assert_eq!(said(8, &HashMap::new()), [nothing; 2]);
    }

    #[test]
    fn directories_are_found_by_their_inode_and_files_are_left_out() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("a/b")).expect("directories");
        fs::write(root.path().join("cgroup.procs"), "").expect("a file");
        let all = directories(root.path(), MOST_LISTED);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], root.path());
        assert_eq!(directories(root.path(), 2), all[..2]);
        let ids = by_id(root.path());
        let inode = fs::metadata(root.path().join("a/b")).expect("there").ino();
        assert_eq!(ids[&inode], root.path().join("a/b"));
    }
}
