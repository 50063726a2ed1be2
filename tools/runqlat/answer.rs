//! The answer in a sentence, and the command that looks further.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use hist::Histogram;
use profile::rank::Rank;
use profile::text::{WIDTH, comm, round_percent, sentence};
use profile::units;
use session::chosen;
use session::next::{self, Step};

use crate::runqlat::args::Args;
use crate::runqlat::harvest::{Culprit, EXITED, Interval};
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
    parts.extend(never_ran(interval));
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
        let ended = match interval.ready.is_empty() {
            true => "",
            false => " ended",
        };
        return format!("{none} for a CPU{ended} in {length}");
    }
    let about = if is_estimate { "about " } else { "" };
    let waits = units::counted(all.count(), "waits");
    let sum = units::thread_time(all.sum());
    format!("{about}{waits} for a CPU in {length}, {sum}")
}

/// Threads whose wait spans the interval, and has no length; those for want of quota.
fn never_ran(interval: &Interval) -> Option<String> {
    let ready = interval.ready.len();
    let without = interval
        .ready
        .iter()
        .filter(|one| one.without_quota)
        .count();
    let for_what = match without {
        0 => String::new(),
        all if all == ready => ", for want of CPU quota".into(),
        some => format!(", {} for want of CPU quota", units::count(some as u64)),
    };
    let threads = units::counted(ready as u64, "threads");
    (ready > 0).then(|| format!("{threads} ready throughout never ran{for_what}"))
}

/// Looks whether no wait ended because threads had no CPU quota.
fn is_held_back(interval: &Interval) -> bool {
    let is_all = all_waits(interval).count() == 0;
    is_all && interval.ready.iter().any(|one| one.without_quota)
}

/// A process that was waited behind: its threads together.
struct Process {
    tgid: u32,
    comm: Arc<str>,
    threads: u64,
    caused_ns: u64,
}

/// Processes that were waited behind, the most time first; without what ran too long ago to be remembered.
fn processes(culprits: &[Culprit]) -> Vec<Process> {
    let mut processes: HashMap<u32, Process> = HashMap::new();
    for culprit in culprits.iter().filter(|culprit| culprit.tid != 0) {
        let process = processes.entry(culprit.tgid).or_insert_with(|| Process {
            tgid: culprit.tgid,
            comm: Arc::clone(&culprit.comm),
            threads: 0,
            caused_ns: 0,
        });
        process.threads += 1;
        process.caused_ns += culprit.caused_ns;
        // Its own name, not a thread's; a thread's, where it has none any more.
        if culprit.tid == culprit.tgid || &*process.comm == EXITED {
            process.comm = Arc::clone(&culprit.comm);
        }
    }
    let mut processes: Vec<Process> = processes.into_values().collect();
    processes.rank_by_key(|process| Reverse((process.caused_ns, process.tgid)));
    processes
}

/// The process that was waited behind longest, if that is more than a twentieth of the time: a server with a thread for each CPU
/// is in its own way by many small parts.
fn behind(interval: &Interval, sum_ns: u64) -> Option<String> {
    let processes = processes(&interval.culprits);
    let most = processes.first()?;
    // Time of waits that found no room in the tables is not in the sum.
    let share = round_percent(most.caused_ns.min(sum_ns), sum_ns);
    // Any of them may have run then, too.
    let is_nameless = |one: &Culprit| one.tid == 0 && one.caused_ns > sum_ns / 100;
    let least = match interval.culprits.iter().any(is_nameless) {
        true => "at least ",
        false => "",
    };
    let threads = match most.threads {
        1 => String::new(),
        threads => format!("{threads} threads of "),
    };
    let comm = comm(&most.comm);
    let said = format!("{least}{share} behind {threads}{comm} {}", most.tgid);
    (most.caused_ns > sum_ns / 20).then_some(said)
}

/// The line of the command that looks further: at the quota, at whom others waited behind, or where nobody waited for long, at other waits.
pub(crate) fn next(args: &Args, interval: &Interval) -> String {
    if let Some(quota) = quota::at_fault(interval) {
        return quota::next(args, quota);
    }
    let asked = chosen::options(&args.targets, next::is_there);
    if quota::is_at_fault(interval) || is_held_back(interval) {
        // Its group has no name, and nobody that ran meanwhile is to blame.
        return match asked.filter(|asked| !asked.is_empty()) {
            None => Step::Shortages.line(""),
            Some(asked) => Step::CpuTime.line_for(&asked, "what uses up the quota"),
        };
    }
    if !interval.ready.is_empty() && all_waits(interval).count() == 0 {
        return Step::Shortages.line("");
    }
    // A hundredth of the time is worth a look.
    let least_ns = length_ns(interval) / 100;
    // This program itself is gone when the line is read.
    let is_other = |tgid| tgid != std::process::id() && next::is_there(tgid);
    let processes = processes(&interval.culprits);
    let most = processes.iter().find(|process| is_other(process.tgid));
    if let Some(most) = most.filter(|most| most.caused_ns > least_ns) {
        let target = format!("-p {}", most.tgid);
        let answers = format!("what {} runs", next::in_remark(&most.comm, "it"));
        return Step::CpuTime.line_for(&target, &answers);
    }
    if !was_looked_at(interval) || all_waits(interval).sum() > least_ns {
        return Step::Shortages.line("");
    }
    match asked.filter(|asked| !asked.is_empty()) {
        None => Step::Shortages.line_for("", "what else is short"),
        Some(targets) => Step::Why.line_for(&targets, "what costs it its time instead"),
    }
}
