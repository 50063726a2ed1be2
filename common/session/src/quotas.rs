//! CPU quotas of control groups, and which were used up in an interval.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use host::procs;
use profile::escape::terminal;
use profile::rank::Rank;
use profile::sums::sums;
use profile::text::{cut, cut_start};
use profile::units;
use serde_json::{Value, json};

use crate::cgroups::{self, MOST_LISTED, by_id, directories, v1_mount};
use crate::chosen;
use crate::next::{self, Step};
use crate::targets::{Targets, cgroup2_mount};

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

    /// Groups whose quota was used up between `self` and now, and that any of these processes is in; the first process's groups come
    /// first. Where all of them have ended, any group may be theirs, unless they were asked for (`is_choice`).
    pub fn used_up_by(
        &self,
        processes: impl IntoIterator<Item = u32>,
        is_choice: bool,
    ) -> Vec<UsedUp> {
        let groups_of = |tgid| fs::read_to_string(format!("/proc/{tgid}/cgroup")).ok();
        let groups_of: Vec<String> = processes.into_iter().filter_map(groups_of).collect();
        let place = |group: &UsedUp| groups_of.iter().position(|lines| group.is_in(lines));
        let mut groups = Self::take().used_up_since(self);
        if is_choice || !groups_of.is_empty() {
            groups.retain(|group| place(group).is_some());
        }
        groups.sort_by_key(place);
        groups
    }
}

/// Processes by what they have in all, the most first.
pub fn heaviest(parts: impl IntoIterator<Item = (u32, u64)>) -> impl Iterator<Item = u32> {
    let mut heaviest: Vec<(u32, u64)> = sums(parts).into_iter().collect();
    heaviest.rank_by_key(|(tgid, sum)| Reverse((*sum, *tgid)));
    heaviest.into_iter().map(|(tgid, _)| tgid)
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

/// Lines on the first of these groups, for want of whose quota some did what `who` says, and how many more there are: up to
/// three lines.
pub fn describe(who: &str, groups: &[UsedUp]) -> Vec<String> {
    let Some(first) = groups.first() else {
        return Vec::new();
    };
    let [whose, how] = first.describe();
    let time = units::duration(first.throttled_ns);
    let mut lines = vec![
        format!("{who} for want of {whose}:"),
        format!("  {how}, {time} in all"),
    ];
    lines.extend(more(groups.len()));
    lines
}

/// Says how many of these groups come after the first, if any do.
pub fn more(groups: usize) -> Option<String> {
    let more = groups.checked_sub(2)? as u64 + 1;
    let more = units::counted(more, "more groups");
    Some(format!("  (and of {more})"))
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

    /// A process in it, or in a group below.
    fn process(&self) -> Option<u32> {
        let groups = directories(&self.path, MOST_LISTED).into_iter();
        let mut lists = groups.map(|path| fs::read_to_string(path.join("cgroup.procs")));
        lists.find_map(|list| {
            let list = list.unwrap_or_default();
            let mut processes = list.lines().filter_map(|id| id.parse().ok());
            processes.find(|tgid| next::is_there(*tgid))
        })
    }

    /// The line of the command that tells what spends it: by the process that waited, if that is known, by what was chosen, or by any
    /// of its processes.
    pub fn next(&self, tgid: Option<u32>, targets: &Targets) -> String {
        let chosen = || {
            let options = chosen::options(targets, next::is_there);
            options.filter(|options| !options.is_empty())
        };
        let any = || self.target(Some(self.process()?));
        match self.target(tgid).or_else(chosen).or_else(any) {
            Some(target) => Step::CpuTime.line_for(&target, "what uses up the quota"),
            None if self.is_v2 => Step::Groups.line(""),
            None => Step::Shortages.line(""),
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
#[path = "quotas_tests.rs"]
mod tests;
