//! CPU quotas of control groups, and which were used up in an interval.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use host::procs;
use profile::escape::terminal;
use profile::rank::Rank;
use profile::text::{cut, cut_start};
use profile::units;
use serde_json::{Value, json};

use crate::cgroups::{self, MOST_LISTED, by_id, directories, v1_mount};
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

/// `cpu.stat`, since the group was made, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Periods in which it ran.
    pub periods: u64,
    /// Those in which the quota was used up.
    pub used_up: u64,
    /// Time that its run queues, one a CPU, stood still for that, ns.
    pub throttled_ns: u64,
}

impl Account {
    /// The difference; `None`: not the same group's.
    pub fn since(self, before: Self) -> Option<Self> {
        Some(Self {
            periods: self.periods.saturating_sub(before.periods),
            used_up: self.used_up.checked_sub(before.used_up)?,
            throttled_ns: self.throttled_ns.saturating_sub(before.throttled_ns),
        })
    }
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
        let mut quotas = Self {
            v1: v1_mount("cpu"),
            v2: cgroup2_mount().map(PathBuf::from),
            ..Self::default()
        };
        let roots = quotas.v1.iter().chain(&quotas.v2);
        let lists: Vec<Vec<PathBuf>> = roots.map(|root| directories(root, MOST_LISTED)).collect();
        quotas.is_whole = lists.iter().all(|list| list.len() < MOST_LISTED);
        // Most have never had a quota: nothing of these is kept.
        let accounts = lists.into_iter().flatten().filter_map(|path| {
            let account = account(&path).filter(|account| account.periods > 0)?;
            Some((path, account))
        });
        quotas.accounts = accounts.collect();
        quotas
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
                let spent = now.since(*before.accounts.get(path).or(began)?)?;
                let root = self.v1.as_ref().filter(|root| path.starts_with(root));
                let is_v2 = root.is_none();
                UsedUp::of(path, (root.or(self.v2.as_ref())?, is_v2), spent)
            })
            .collect();
        longest_first(&mut found);
        found
    }
}

/// Names of groups whose accounts are known by their ID, which is their directory's inode number.
#[derive(Default)]
pub struct Names {
    /// `None`: it cannot be seen from here, or was gone when it was looked for.
    paths: HashMap<u64, Option<PathBuf>>,
}

impl Names {
    /// Those of `spent` that were used up, the longest first. Groups without a name are left out.
    pub fn used_up(&mut self, spent: impl IntoIterator<Item = (u64, Account)>) -> Vec<UsedUp> {
        let spent = spent.into_iter();
        let spent: Vec<_> = spent.filter(|(_, spent)| spent.used_up > 0).collect();
        if spent.is_empty() {
            return Vec::new();
        }
        let v1 = v1_mount("cpu");
        let is_v2 = v1.is_none();
        let Some(root) = v1.or_else(|| cgroup2_mount().map(PathBuf::from)) else {
            return Vec::new();
        };
        self.look_up(&root, spent.iter().map(|(id, _)| *id));
        let named = spent.into_iter().filter_map(|(id, spent)| {
            let path = self.paths.get(&id)?.as_ref()?;
            UsedUp::of(path, (&root, is_v2), spent)
        });
        let mut found: Vec<UsedUp> = named.collect();
        longest_first(&mut found);
        found
    }

    /// Looks through the hierarchy, if one is new.
    fn look_up(&mut self, root: &Path, ids: impl Iterator<Item = u64>) {
        let new: Vec<u64> = ids.filter(|id| !self.paths.contains_key(id)).collect();
        if !new.is_empty() {
            let mut all = by_id(root);
            let found = new.into_iter().map(|id| (id, all.remove(&id)));
            self.paths.extend(found);
        }
    }
}

/// Writes how many of these groups come after the first, if any do.
///
/// # Errors
///
/// Those of `out`.
pub fn write_more(groups: usize, out: &mut impl Write) -> io::Result<()> {
    match groups {
        0 | 1 => Ok(()),
        n => {
            let more = units::counted(n as u64 - 1, "more groups");
            writeln!(out, "  (and of {more})")
        }
    }
}

fn longest_first(groups: &mut [UsedUp]) {
    groups.rank_by_key(|group| (Reverse(group.throttled_ns), group.path.clone()));
}

impl UsedUp {
    /// `None`: the quota has sufficed.
    fn of(path: &Path, (root, is_v2): (&Path, bool), spent: Account) -> Option<Self> {
        if spent.used_up == 0 {
            return None;
        }
        let (quota_ns, period_ns) = limit(path, is_v2).unwrap_or_default();
        Some(Self {
            path: path.to_owned(),
            root: root.to_owned(),
            is_v2,
            quota_ns,
            period_ns,
            periods: spent.periods,
            used_up: spent.used_up,
            throttled_ns: spent.throttled_ns,
        })
    }

    /// Looks whether lines of a `/proc/PID/cgroup` are of the group or below.
    pub fn is_in(&self, lines: &str) -> bool {
        let controller = if self.is_v2 { "" } else { "cpu" };
        cgroups::is_in(lines, controller, &self.root, &self.path)
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
    fn groups_have_names_by_their_inodes_and_are_looked_for_once() {
        use std::os::unix::fs::MetadataExt;

        let root = tempfile::tempdir().expect("a directory");
        group(root.path(), 3, 2, false);
        let path = root.path().join("pod/app");
        let id = fs::metadata(&path).expect("there").ino();
        let mut names = Names::default();
        names.look_up(root.path(), [id, 1].into_iter());
        assert_eq!((&names.paths[&id], &names.paths[&1]), (&Some(path), &None));
        names.look_up(Path::new("/nowhere"), [id, 1].into_iter());
        assert!(names.paths[&id].is_some());
    }

    #[test]
    fn accounts_differ_unless_they_are_of_different_groups() {
        let account = |periods, used_up, throttled_ns| Account {
            periods,
            used_up,
            throttled_ns,
        };
        let (then, now) = (account(10, 3, 70), account(13, 5, 95));
        assert_eq!(now.since(then), Some(account(3, 2, 25)));
        assert_eq!(then.since(now), None);
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
    }
}
