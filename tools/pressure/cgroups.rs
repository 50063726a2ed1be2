//! cgroups: their names by ID, and the pressure on each.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use profile::rank::Rank;

use crate::pressure::psi::{Lost, Resource, Snapshot, Source};

/// Directories looked at; beyond that many nobody reads the list.
const MOST: usize = 4096;

/// Every cgroup v2 directory below a root, the root first.
pub(crate) fn directories(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < MOST {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(below.map(|entry| entry.path()));
        next += 1;
    }
    found.truncate(MOST);
    found
}

/// Directories by cgroup ID, which is their inode number.
pub(crate) fn by_id(root: &Path) -> HashMap<u64, PathBuf> {
    directories(root)
        .into_iter()
        .filter_map(|path| Some((fs::metadata(&path).ok()?.ino(), path)))
        .collect()
}

/// The pressure files of many cgroups at one moment.
pub(crate) struct Snapshots(HashMap<PathBuf, Snapshot>);

/// The pressure on one cgroup over an interval.
pub(crate) struct CgroupPressure {
    pub(crate) path: PathBuf,
    /// By `Resource`.
    pub(crate) lost: [Option<Lost>; 4],
}

impl Snapshots {
    pub(crate) fn take(root: &Path) -> Self {
        let paths = directories(root).into_iter();
        Self(
            paths
                .map(|path| (path.clone(), Snapshot::take(&Source::Cgroup(path))))
                .collect(),
        )
    }

    /// Of those that existed at both ends and have pressure files, the most pressed first.
    pub(crate) fn since(&self, before: &Self) -> Vec<CgroupPressure> {
        let both = self
            .0
            .iter()
            .filter_map(|(path, now)| Some((path, now, before.0.get(path)?)));
        let mut pressures: Vec<CgroupPressure> = both
            .map(|(path, now, before)| CgroupPressure {
                path: path.clone(),
                lost: Resource::ALL.map(|resource| now.since(before, resource)),
            })
            .filter(|cgroup| cgroup.lost.iter().any(Option::is_some))
            .collect();
        pressures.rank_by(|a, b| {
            b.worst_percent()
                .total_cmp(&a.worst_percent())
                .then_with(|| a.path.cmp(&b.path))
        });
        pressures
    }
}

impl CgroupPressure {
    /// The highest of its shares, percent.
    pub(crate) fn worst_percent(&self) -> f64 {
        let shares = self
            .lost
            .iter()
            .flatten()
            .flat_map(|lost| [lost.some, lost.full]);
        let percents = shares.flatten().map(|share| share.percent());
        percents.fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_found_by_their_inode_and_files_are_left_out() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("a/b")).expect("directories");
        fs::write(root.path().join("cgroup.procs"), "").expect("a file");
        let all = directories(root.path());
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], root.path());
        let ids = by_id(root.path());
        let inode = fs::metadata(root.path().join("a/b")).expect("there").ino();
        assert_eq!(ids[&inode], root.path().join("a/b"));
    }
}
