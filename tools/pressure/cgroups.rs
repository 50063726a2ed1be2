//! The pressure on each cgroup.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use profile::rank::Rank;
use session::cgroups::{MOST_LISTED, directories};

use crate::pressure::psi::{Lost, Resource, Snapshot, Source};

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
        let paths = directories(root, MOST_LISTED).into_iter();
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
