//! The answer in a sentence, and the command that looks further.

use hist::Histogram;
use profile::text::{WIDTH, comm, round_percent, sentence};
use profile::units;
use session::chosen;
use session::next::{self, Step};

use crate::runqlat::args::Args;
use crate::runqlat::harvest::{Culprit, Interval};
use crate::runqlat::quota;

/// `1,159 waits for a CPU in 3.00 s, 233 ms of thread time; p50 11.0 us p99 3.87 ms; 46% behind app 27621`, in as many lines as it
/// takes; none where nothing was looked at.
pub(crate) fn answer(interval: &Interval) -> Vec<String> {
    if !was_looked_at(interval) {
        return Vec::new();
    }
    let all = all_waits(interval);
    let mut parts = vec![length(&all, interval)];
    if all.count() > 0 {
        let [p50, p99] = [50.0, 99.0].map(|at| units::duration(all.percentile(at)));
        parts.push(format!("p50 {p50} p99 {p99}"));
    }
    // Nobody is waited behind for a quota.
    if !quota::is_at_fault(interval) {
        parts.extend(behind(interval, all.sum()));
    }
    sentence(&parts, ";", WIDTH)
}

fn all_waits(interval: &Interval) -> Histogram {
    let mut all = Histogram::default();
    for waits in &interval.waits {
        all.merge(&waits.histogram);
    }
    all
}

fn was_looked_at(interval: &Interval) -> bool {
    interval
        .estimates
        .as_ref()
        .is_none_or(|estimates| estimates.looked > 0.0)
}

fn length_ns(interval: &Interval) -> u64 {
    interval.end_ns - interval.start_ns
}

fn length(all: &Histogram, interval: &Interval) -> String {
    let length = units::duration(length_ns(interval));
    let is_estimate = interval.estimates.is_some();
    if all.count() == 0 {
        let none = if is_estimate {
            "no waits seen"
        } else {
            "no waits"
        };
        return format!("{none} for a CPU in {length}");
    }
    let about = if is_estimate { "about " } else { "" };
    let waits = units::counted(all.count(), "waits");
    let sum = units::thread_time(all.sum());
    format!("{about}{waits} for a CPU in {length}, {sum}")
}

/// The task that was waited behind longest, if it is known and that is more than a twentieth of the time.
fn behind(interval: &Interval, sum_ns: u64) -> Option<String> {
    let most = interval.culprits.first().filter(|most| most.tid != 0)?;
    // Time of waits that found no room in the tables is not in the sum.
    let share = round_percent(most.caused_ns.min(sum_ns), sum_ns);
    let comm = comm(&most.comm);
    (most.caused_ns > sum_ns / 20).then(|| format!("{share} behind {comm} {}", most.tgid))
}

/// The line of the command that looks further: at the quota, at whom others waited behind, or where nobody waited for long, at other waits.
pub(crate) fn next(args: &Args, interval: &Interval) -> String {
    if let Some(quota) = quota::at_fault(interval) {
        return quota::next(args, quota);
    }
    let asked = chosen::options(&args.targets, next::is_there);
    if quota::is_at_fault(interval) {
        // Its group has no name, and nobody that ran meanwhile is to blame.
        return match asked.filter(|asked| !asked.is_empty()) {
            None => Step::Shortages.line(""),
            Some(asked) => Step::CpuTime.line_for(&asked, "what uses up the quota"),
        };
    }
    // A hundredth of the time is worth a look.
    let least_ns = length_ns(interval) / 100;
    // This program itself is gone when the line is read.
    let is_other = |tgid| tgid != std::process::id() && next::is_there(tgid);
    let is_one = |culprit: &&Culprit| culprit.tid != 0 && is_other(culprit.tgid);
    let culprit = interval.culprits.iter().find(is_one);
    if let Some(culprit) = culprit.filter(|culprit| culprit.caused_ns > least_ns) {
        let target = format!("-p {}", culprit.tgid);
        let answers = format!("what {} runs", next::in_remark(&culprit.comm, "it"));
        return Step::CpuTime.line_for(&target, &answers);
    }
    if !was_looked_at(interval) || all_waits(interval).sum() > least_ns {
        return Step::Shortages.line("");
    }
    match asked.filter(|asked| !asked.is_empty()) {
        None => Step::Shortages.line_for("", "what else is short"),
        Some(targets) => Step::Waits.line_for(&targets, "where it waits instead"),
    }
}
