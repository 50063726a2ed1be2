//! CPU quotas that held the sampled processes back.

use std::process;

use session::quotas::{self, Quotas, UsedUp};

use crate::profile::answer::period_ns;
use crate::profile::args::Args;
use crate::profile::harvest::{Harvest, Row};

/// Processes whose groups are looked at.
const MOST: usize = 256;

/// The accounts before a window; where nobody was chosen, or the samples are no CPU time, nothing is to be compared with them.
pub(crate) fn before(args: &Args) -> Quotas {
    match period_ns(args) {
        Some(_) if !args.targets.are_all() => Quotas::take(),
        _ => Quotas::default(),
    }
}

/// Groups of those asked for whose quota was used up since then; those of the process with most samples come first.
pub(crate) fn used_up(args: &Args, before: &Quotas, rows: &[Row]) -> Vec<UsedUp> {
    if period_ns(args).is_none() || args.targets.are_all() {
        return Vec::new();
    }
    before.used_up_by(processes(args, rows), true)
}

/// Those with most samples first; those asked for that have none; and this one, in whose groups a command begins.
fn processes(args: &Args, rows: &[Row]) -> Vec<u32> {
    let samples = rows.iter().map(|row| (row.task.tgid, row.samples));
    let seen = quotas::heaviest(samples).take(MOST);
    let asked = [&args.targets.pids[..], &args.targets.tids].concat();
    let own = (!args.targets.command.is_empty()).then(process::id);
    seen.chain(asked).chain(own).collect()
}

/// Lines on whose quota it was, if its run queues stood still for longer than a hundredth of the time.
pub(crate) fn describe(harvest: &Harvest) -> Vec<String> {
    let is_much = |group: &UsedUp| group.throttled_ns >= harvest.window.ns() / 100;
    match harvest.quotas.first() {
        Some(first) if is_much(first) => quotas::describe("threads stood still", &harvest.quotas),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use profile::model::Task;

    use super::*;

    #[test]
    fn groups_of_busy_processes_come_before_those_of_idle_ones() {
        let row = |tgid, samples| Row {
            task: Task {
                tgid,
                ..Task::default()
            },
            user: 0,
            kernel: 0,
            samples,
            weight: samples,
        };
        let rows = [row(7, 3), row(8, 4), row(7, 3)];
        let args = Args::parse_from(["profile", "-p", "7,9"]);
        assert_eq!(processes(&args, &rows), [7, 8, 7, 9]);
        let args = Args::parse_from(["profile", "--", "make"]);
        assert_eq!(processes(&args, &rows), [7, 8, process::id()]);
    }
}
