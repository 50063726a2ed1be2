//! CPU quotas: who waits for one waits behind no neighbour.

use std::io::Write;

use anyhow::Result;
use profile::units;
use session::next::Step;
use session::quotas::{Quotas, UsedUp};
use session::targets::Targets;

use crate::runqlat::args::Args;
use crate::runqlat::harvest::Interval;

/// The accounts of all groups, which takes a file of each; empty where [`used_up`] names none.
pub(crate) fn accounts(targets: &Targets) -> Quotas {
    let is_by_name = targets.comm.is_some() && targets.cgroup.is_none() && ids(targets).is_empty();
    match targets.kernel_threads || is_by_name {
        true => Quotas::default(),
        false => Quotas::take(),
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hist::Histogram;
    use hist::harvest::Group;

    use super::*;
    use crate::runqlat::report::write_human;

    const MS: u64 = 1_000_000;

    fn interval(throttled_ns: u64) -> Interval {
        let mut histogram = Histogram::default();
        (0..10).for_each(|_| histogram.record(80 * MS));
        let quota = UsedUp {
            path: "/cg/pod".into(),
            quota_ns: 20 * MS,
            period_ns: 100 * MS,
            periods: 24,
            used_up: 18,
            throttled_ns,
            ..UsedUp::default()
        };
        let culprit = crate::runqlat::harvest::Culprit {
            tgid: std::process::id(),
            tid: 1,
            comm: "neighbour".into(),
            caused_ns: 700 * MS,
            waits: 9,
        };
        Interval {
            end_ns: 1000 * MS,
            waits: vec![Group {
                id: bpf::runqlat::types::group_id::default(),
                comm: "".into(),
                histogram,
            }],
            culprits: vec![culprit],
            quotas: vec![quota],
            ..Interval::default()
        }
    }

    fn text(options: &str, interval: &Interval) -> String {
        let line = format!("runqlat {options}");
        let args = Args::parse_from(line.split_whitespace());
        let mut text = Vec::new();
        write_human(&args, interval, &mut text).expect("a vector takes everything");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_quota_is_named_in_place_of_the_neighbour_where_it_was_the_cause() {
        let found = text("-p 7", &interval(400 * MS));
        let head = "threads waited for want of CPU quota of /cg/pod:
  20.0 ms per 100 ms, used up in 18 of 24 periods, 400 ms in all
     usecs ";
        assert!(found.starts_with(head), "{found}");
        assert!(found.contains("WAITS  RAN MEANWHILE\n"), "{found}");
        let next = "next: profile -p 7 10   # what uses up the quota\n";
        assert!(found.contains(next), "{found}");
        let of_several = text("-p 7", &interval(399 * MS));
        assert!(of_several.starts_with("threads waited for"), "{of_several}");
        let rare = text("-p 7", &interval(99 * MS));
        assert!(rare.starts_with("some waits are for"), "{rare}");
        let other = text("", &interval(399 * MS));
        assert!(other.starts_with("some waits are for want of CPU quota of /cg/pod:\n"));
        assert!(other.contains("WAITS  WAITED BEHIND\n"), "{other}");
        assert!(other.contains("# what neighbour runs\n"), "{other}");
    }
}
