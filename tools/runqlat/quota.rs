//! CPU quotas: who waits for one waits behind no neighbour.

use std::io::Write;

use anyhow::Result;
use profile::units;
use session::next::Step;
use session::quotas::{Quotas, UsedUp};
use session::targets::Targets;

use crate::runqlat::args::Args;
use crate::runqlat::harvest::Interval;

/// The accounts of groups that [`used_up`] can name, which takes a file of each.
pub(crate) fn accounts(targets: &Targets) -> Quotas {
    let tids = ids(targets);
    match (&targets.cgroup, targets.comm.is_some()) {
        _ if targets.kernel_threads => Quotas::default(),
        (None, _) if !tids.is_empty() => Quotas::take_above(&tids),
        (None, true) => Quotas::default(),
        _ => Quotas::take(),
    }
}

/// Groups that those asked for are in, which of `now` were used up since `before`.
pub(crate) fn used_up(targets: &Targets, now: &Quotas, before: &Quotas) -> Vec<UsedUp> {
    let mut used_up = now.used_up_since(before);
    let tids = ids(targets);
    used_up.retain(|group| match &targets.cgroup {
        Some(directory) => group.is_related(directory),
        None => tids.is_empty() || tids.iter().any(|tid| group.holds(*tid)),
    });
    used_up
}

/// Processes and threads asked for; a command begins where this tool is.
fn ids(targets: &Targets) -> Vec<u32> {
    match targets.command.is_empty() {
        true => targets.pids.iter().chain(&targets.tids).copied().collect(),
        false => vec![std::process::id()],
    }
}

/// The group whose quota is what threads waited for: it stood still for most of their waits' time, or where
/// threads of it were asked for, in most of its periods. Several of them wait while one run queue stands still.
pub(crate) fn at_fault<'a>(args: &Args, interval: &'a Interval) -> Option<&'a UsedUp> {
    let groups = interval.waits.iter();
    let waited_ns: u64 = groups.map(|waits| waits.histogram.sum()).sum();
    let throttled_ns: u64 = interval.quotas.iter().map(|one| one.throttled_ns).sum();
    let first = interval.quotas.first().filter(|_| waited_ns > 0)?;
    let targets = &args.targets;
    let has_ids = !targets.pids.is_empty() || !targets.tids.is_empty();
    let is_chosen = has_ids || targets.cgroup.is_some() || !targets.command.is_empty();
    let length_ns = interval.end_ns - interval.start_ns;
    let is_most = throttled_ns > 0 && throttled_ns >= waited_ns / 2;
    let is_usual = 2 * first.used_up >= first.periods && first.throttled_ns >= length_ns / 10;
    (is_most || is_chosen && is_usual).then_some(first)
}

/// Writes what is known of the first group, if there is one.
pub(crate) fn write(args: &Args, interval: &Interval, out: &mut impl Write) -> Result<()> {
    let Some(quota) = interval.quotas.first() else {
        return Ok(());
    };
    let [whose, how] = quota.describe();
    let time = units::duration(quota.throttled_ns);
    match at_fault(args, interval) {
        Some(_) => writeln!(out, "threads waited for want of {whose}:")?,
        None => writeln!(out, "some waits are for want of {whose}:")?,
    }
    writeln!(out, "  {how}, {time} in all")?;
    match interval.quotas.len() {
        1 => Ok(()),
        n => Ok(writeln!(out, "  (and of {} groups more)", n - 1)?),
    }
}

/// The line of the command that tells what spends it.
pub(crate) fn next(args: &Args, quota: &UsedUp) -> String {
    match quota.target(args.targets.pids.first().copied()) {
        Some(target) => Step::CpuTime.line_for(&target, "what uses up the quota"),
        None if quota.is_v2 => Step::Groups.line(""),
        None => Step::Shortages.line(""),
    }
}
