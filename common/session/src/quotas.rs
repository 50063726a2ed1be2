//! CPU quotas of control groups, and which were used up in an interval.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use host::procs;
use profile::escape::terminal;
use profile::rank::Rank;
use profile::text::{cut, cut_start};
use profile::units;
use serde_json::{Value, json};

use crate::cgroups::{self, MOST_LISTED, directories, v1_mount};
use crate::next;
use crate::targets::cgroup2_mount;

/// Columns of a group's name, and of its path.
const NAME: usize = 32;
const PATH: usize = 36;

/// The accounts of all groups that have a quota, at one moment.
#[derive(Default)]
pub struct Quotas {
    v1: Option<PathBuf>,
    v2: Option<PathBuf>,
    accounts: HashMap<PathBuf, Account>,
    /// All groups are among them.
    is_whole: bool,
}

/// `cpu.stat`, since the group was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    periods: u64,
    used_up: u64,
    throttled_ns: u64,
}

/// A group whose quota did not suffice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedUp {
    /// Its directory.
    pub path: PathBuf,
    /// Mount of its hierarchy.
    pub root: PathBuf,
    /// It is of cgroup v2.
    pub is_v2: bool,
    /// CPU time that it may have in a period, ns; 0: not known any more.
    pub quota_ns: u64,
    /// The period, ns.
    pub period_ns: u64,
    /// Periods in which it ran.
    pub periods: u64,
    /// Those in which the quota was used up.
    pub used_up: u64,
    /// Time that its run queues, one a CPU, stood still for that, ns.
    pub throttled_ns: u64,
}

impl Quotas {
    /// Reads them, of v1 and of v2, of 4,096 groups each at most.
    pub fn take() -> Self {
        let mut none = Self::none();
        let lists: Vec<Vec<PathBuf>> = none
            .roots()
            .map(|(root, _)| directories(root, MOST_LISTED))
            .collect();
        none.is_whole = lists.iter().all(|list| list.len() < MOST_LISTED);
        // Most have never had a quota: nothing of these is kept.
        none.with(lists.into_iter().flatten(), |account| account.periods > 0)
    }

    /// The same of the groups only that hold one of these threads now: one that a thread enters later is not known before the next
    /// look.
    pub fn take_above(tids: &[u32]) -> Self {
        let none = Self::none();
        let mut paths = HashSet::new();
        for tid in tids {
            let lines = fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap_or_default();
            for (root, controller) in none.roots() {
                let own = cgroups::of(&lines, controller, root).unwrap_or_default();
                let above = own.ancestors().take_while(|path| path.starts_with(root));
                paths.extend(above.map(Path::to_owned));
            }
        }
        none.with(paths.into_iter(), |_| true)
    }

    fn none() -> Self {
        Self {
            v1: v1_mount("cpu"),
            v2: cgroup2_mount().map(PathBuf::from),
            ..Self::default()
        }
    }

    /// Mounts with what `/proc/PID/cgroup` calls them.
    fn roots(&self) -> impl Iterator<Item = (&Path, &'static str)> {
        let v1 = self.v1.as_deref().map(|root| (root, "cpu"));
        v1.into_iter()
            .chain(self.v2.as_deref().map(|root| (root, "")))
    }

    fn with(mut self, paths: impl Iterator<Item = PathBuf>, is_kept: fn(&Account) -> bool) -> Self {
        let accounts = paths.filter_map(|path| Some((account(&path).filter(is_kept)?, path)));
        self.accounts = accounts.map(|(account, path)| (path, account)).collect();
        self
    }

    /// Those that were used up between `before` and now, the longest first.
    pub fn used_up_since(&self, before: &Self) -> Vec<UsedUp> {
        let zero = Account::default();
        let mut found: Vec<UsedUp> = self
            .accounts
            .iter()
            .filter_map(|(path, now)| {
                // A group that is new began at 0, unless it was there and not read.
                let began = Some(&zero).filter(|_| before.is_whole);
                self.used_up(path, now, before.accounts.get(path).or(began)?)
            })
            .collect();
        found.rank_by_key(|group| (Reverse(group.throttled_ns), group.path.clone()));
        found
    }

    fn used_up(&self, path: &Path, now: &Account, before: &Account) -> Option<UsedUp> {
        let used_up = now.used_up.checked_sub(before.used_up)?;
        let root = self.v1.as_ref().filter(|root| path.starts_with(root));
        let is_v2 = root.is_none();
        let root = root.or(self.v2.as_ref())?.clone();
        let (quota_ns, period_ns) = limit(path, is_v2).unwrap_or_default();
        (used_up > 0).then(|| UsedUp {
            path: path.to_owned(),
            root,
            is_v2,
            quota_ns,
            period_ns,
            periods: now.periods.saturating_sub(before.periods),
            used_up,
            throttled_ns: now.throttled_ns.saturating_sub(before.throttled_ns),
        })
    }
}

impl UsedUp {
    /// Looks whether a process, or a thread, is in the group or below.
    pub fn holds(&self, tid: u32) -> bool {
        let lines = fs::read_to_string(format!("/proc/{tid}/cgroup")).unwrap_or_default();
        self.is_in(&lines)
    }

    /// The same of the lines of a `/proc/PID/cgroup`.
    pub fn is_in(&self, lines: &str) -> bool {
        let controller = if self.is_v2 { "" } else { "cpu" };
        cgroups::is_in(lines, controller, &self.root, &self.path)
    }

    /// Looks whether it is this directory, above it or below.
    pub fn is_related(&self, directory: &Path) -> bool {
        self.path.starts_with(directory) || directory.starts_with(&self.path)
    }

    /// Name of its directory without those above, cut where it is long.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        cut(&terminal(&name.to_string_lossy()), NAME)
    }

    /// Two lines: `CPU quota of /sys/fs/cgroup/a` and `20.0 ms per 100 ms, used up in 18 of 24 periods`. The beginning of a long path
    /// is cut.
    pub fn describe(&self) -> [String; 2] {
        let used_up = format!(
            "used up in {} of {}",
            units::count(self.used_up),
            units::counted(self.periods, "periods")
        );
        let path = self.path.display().to_string();
        let limit = match self.quota_ns {
            0 => String::new(),
            quota_ns => format!(
                "{} per {}, ",
                units::duration(quota_ns),
                units::duration(self.period_ns)
            ),
        };
        [
            format!("CPU quota of {}", cut_start(&terminal(&path), PATH)),
            format!("{limit}{used_up}"),
        ]
    }

    /// `{"cgroup", "quota_ns", "period_ns", "periods", "used_up", "throttled_ns"}`
    pub fn to_json(&self) -> Value {
        json!({
            "cgroup": self.path.display().to_string(),
            "quota_ns": self.quota_ns,
            "period_ns": self.period_ns,
            "periods": self.periods,
            "used_up": self.used_up,
            "throttled_ns": self.throttled_ns,
        })
    }

    /// A command line's options for its tasks, or else for one of its processes.
    pub fn target(&self, tgid: Option<u32>) -> Option<String> {
        match self.path.to_str() {
            Some(path) if self.is_v2 && next::is_plain_path(path) => {
                Some(format!("--cgroup {path}"))
            }
            _ => Some(format!("-p {}", tgid?)),
        }
    }
}

/// `None`: it has no account of a quota.
fn account(path: &Path) -> Option<Account> {
    parse(&fs::read_to_string(path.join("cpu.stat")).ok()?)
}

fn parse(stat: &str) -> Option<Account> {
    let number = |name| procs::number(stat, name);
    // v2 has microseconds.
    let throttled_us = number("throttled_usec").and_then(|us| us.checked_mul(1000));
    Some(Account {
        periods: number("nr_periods")?,
        used_up: number("nr_throttled")?,
        throttled_ns: throttled_us.or_else(|| number("throttled_time"))?,
    })
}

/// Quota and period, ns.
fn limit(path: &Path, is_v2: bool) -> Option<(u64, u64)> {
    let read = |name: &str| fs::read_to_string(path.join(name)).ok();
    let text = match is_v2 {
        true => read("cpu.max")?,
        false => read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?,
    };
    let mut us = text
        .split_whitespace()
        .map_while(|us| us.parse::<u64>().ok());
    let mut ns = || us.next()?.checked_mul(1000);
    Some((ns()?, ns()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &Path, periods: u64, used_up: u64, v1: bool) {
        let path = root.join("pod/app");
        fs::create_dir_all(&path).expect("a directory");
        let write = |name: &str, text: String| fs::write(path.join(name), text).expect("a file");
        let head = format!("nr_periods {periods}\nnr_throttled {used_up}\n");
        if v1 {
            let ns = 7_000_000 * used_up;
            write("cpu.stat", format!("{head}throttled_time {ns}\n"));
            write("cpu.cfs_quota_us", "20000\n".into());
            write("cpu.cfs_period_us", "100000\n".into());
        } else {
            let us = 7_000 * used_up;
            let usage = "usage_usec 5\nuser_usec 5\nsystem_usec 0\n";
            write("cpu.stat", format!("{usage}{head}throttled_usec {us}\n"));
            write("cpu.max", "20000 100000\n".into());
        }
    }

    fn quotas(root: &Path, v1: bool) -> Quotas {
        let path = root.join("pod/app");
        let root = Some(root.to_owned());
        let (v1, v2) = if v1 { (root, None) } else { (None, root) };
        let accounts = account(&path).map(|account| (path, account));
        Quotas {
            v1,
            v2,
            accounts: accounts.into_iter().collect(),
            is_whole: true,
        }
    }

    #[test]
    fn a_first_period_of_a_group_that_was_known_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let take = || {
            let path = root.path().join("pod/app");
            let none = Quotas {
                v2: Some(root.path().to_owned()),
                ..Quotas::default()
            };
            none.with([path].into_iter(), |_| true)
        };
        group(root.path(), 0, 0, false);
        let before = take();
        group(root.path(), 3, 2, false);
        let [used_up] = &take().used_up_since(&before)[..] else {
            panic!("one group")
        };
        assert_eq!((used_up.periods, used_up.used_up), (3, 2));
    }

    #[test]
    fn what_was_used_up_is_told_in_both_versions() {
        for v1 in [true, false] {
            let root = tempfile::tempdir().expect("a directory");
            let take = |periods, used_up| {
                group(root.path(), periods, used_up, v1);
                quotas(root.path(), v1)
            };
            let (first, then, last) = (take(10, 0), take(30, 5), take(54, 23));
            assert!(first.used_up_since(&first).is_empty());
            assert!(last.used_up_since(&last).is_empty());
            assert_eq!(then.used_up_since(&first)[0].used_up, 5);
            let mut none = Quotas::default();
            assert!(last.used_up_since(&none).is_empty(), "it may be old");
            none.is_whole = true;
            assert_eq!(last.used_up_since(&none)[0].used_up, 23);
            let [found] = &last.used_up_since(&then)[..] else {
                panic!("one group")
            };
            let numbers = (found.periods, found.used_up, found.throttled_ns);
            assert_eq!(numbers, (24, 18, 18 * 7_000_000));
            let said = found.describe();
            assert!(said[0].starts_with("CPU quota of /") && said[0].ends_with("/pod/app"));
            assert_eq!(said[1], "20.0 ms per 100 ms, used up in 18 of 24 periods");
            assert_eq!(found.name(), "app");
            let path = found.path.display().to_string();
            let expected = if v1 {
                "-p 7".into()
            } else {
                format!("--cgroup {path}")
            };
            assert_eq!(found.target(Some(7)), Some(expected));
        }
    }

    #[test]
    fn its_processes_are_those_in_it_and_below() {
        let of = |is_v2| UsedUp {
            path: "/cg/pod".into(),
            root: "/cg".into(),
            is_v2,
            ..UsedUp::default()
        };
        let both = "4:cpu,cpuacct:/pod/app\n1:name=systemd:/x\n0::/\n";
        assert!(of(false).is_in(both));
        assert!(!of(true).is_in(both));
        assert!(of(true).is_in("4:cpu:/\n0::/pod\n"));
        assert!(!of(true).is_in("0::/pod2\n"));
        assert!(!of(true).is_in(""));
        assert!(of(true).is_related(Path::new("/cg/pod/app")));
        assert!(of(true).is_related(Path::new("/cg")));
        assert!(!of(true).is_related(Path::new("/cg/other")));
    }
}
