//! CPU quotas: who waits for one waits behind no neighbour.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use bpf::runqlat::RunqlatSkel;
use bpf::runqlat::types::{quota, quota_account};
use loader::{iterate, maps};
use profile::text::write_lines;
use profile::units;
use session::next;
use session::quotas::{self, Account, Names, UsedUp};

use crate::runqlat::args::Args;
use crate::runqlat::harvest::Interval;

/// Accounts of the groups that targets are in, or have been.
#[derive(Default)]
pub(crate) struct Quotas {
    /// At the last look.
    accounts: HashMap<u64, Account>,
    names: Names,
}

impl Quotas {
    /// Looks at them. Returns what was spent since the last look, by the group's ID; of a group that targets came into meanwhile, since
    /// then.
    pub(crate) fn look(&mut self, skel: &RunqlatSkel<'_>) -> Result<Vec<(u64, Account)>> {
        iterate::run(skel.links.read_quotas.as_ref())?;
        let entries = maps::entries::<u64, quota>(&skel.maps.quotas)?;
        let spent = entries.into_iter().filter_map(|(id, quota)| {
            let now = account(&quota.now);
            let before = self.accounts.insert(id, now);
            let spent = now.since(before.unwrap_or_else(|| account(&quota.began)))?;
            Some((id, spent))
        });
        Ok(spent.collect())
    }

    /// Those that were used up since the last look, and whether one more was, whose group has no name here.
    pub(crate) fn used_up(&mut self, skel: &RunqlatSkel<'_>) -> Result<(Vec<UsedUp>, bool)> {
        let spent = self.look(skel)?;
        let groups = spent.iter().filter(|(_, spent)| spent.used_up > 0).count();
        let named = self.names.used_up(spent);
        let has_nameless = named.len() < groups;
        Ok((named, has_nameless))
    }
}

fn account(account: &quota_account) -> Account {
    Account {
        periods: account.periods,
        used_up: account.used_up,
        throttled_ns: account.throttled_ns,
    }
}

/// The group whose quota is what threads waited for, most of the time.
pub(crate) fn at_fault(interval: &Interval) -> Option<&UsedUp> {
    interval.quotas.first().filter(|_| is_at_fault(interval))
}

/// Looks whether most of the time was waited for quota, whoever's.
pub(crate) fn is_at_fault(interval: &Interval) -> bool {
    let groups = interval.waits.iter();
    let waited_ns: u64 = groups.map(|waits| waits.histogram.sum()).sum();
    let without_ns = interval.without_quota.sum_ns;
    without_ns > 0 && without_ns >= waited_ns / 2
}

/// Writes what is known of the first group, if any wait was for want of quota.
pub(crate) fn write(interval: &Interval, out: &mut impl Write) -> Result<()> {
    let without = interval.without_quota;
    if without.waits == 0 {
        return Ok(());
    }
    let who = match is_at_fault(interval) {
        true => "threads waited",
        false => "some waits are",
    };
    if interval.quotas.is_empty() {
        // The kernel counts what is used up when a period ends: in a short interval, none may have.
        let whose = match interval.has_nameless_quota {
            true => " of a group whose name is not known",
            false => "",
        };
        writeln!(out, "{who} for want of CPU quota{whose}:")?;
        let waits = units::counted(without.waits, "waits");
        return Ok(writeln!(
            out,
            "  {waits}, {}",
            units::thread_time(without.sum_ns)
        )?);
    }
    Ok(write_lines(quotas::describe(who, &interval.quotas), out)?)
}

/// The line of the command that tells what spends it.
pub(crate) fn next(args: &Args, quota: &UsedUp) -> String {
    let mut asked = args.targets.pids.iter().copied();
    let victim = asked.find(|pid| next::is_there(*pid));
    quota.next(victim, &args.targets)
}
