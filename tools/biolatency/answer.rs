//! The answer in a sentence, and the command that looks further.

use std::cmp::Reverse;
use std::collections::HashMap;

use hist::Histogram;
use profile::escape::terminal;
use profile::rank::Rank;
use profile::text::{WIDTH, comm, cut, round_percent, sentence};
use profile::units;
use session::chosen;
use session::next::{self, Step};

use crate::biolatency::args::{Args, Phase};
use crate::biolatency::disk_use::{DISCARD, DiskUse, READ, WRITE};
use crate::biolatency::harvest::Interval;
use crate::biolatency::{labels, latencies};

/// Columns of a disk's name.
const NAME: usize = 32;
/// Requests in flight for so long are worth a word.
const STUCK_NS: u64 = 1_000_000_000;

/// `reads p50 54.3 us p99 176 us, writes p50 66.1 us p99 606 us; vda 21% busy`, with all that is wrong before it; a line, or more
/// where there is much to say.
pub(crate) fn answer(args: &Args, interval: &Interval) -> Vec<String> {
    let mut parts = wrong(interval);
    parts.push(latencies(args, interval));
    parts.extend(shares(args, interval));
    parts.extend(whose(args, interval));
    let wall_ns = interval.wall_ns();
    if let Some(disk) = busiest(interval) {
        let busy = 100.0 * disk.busy_ns(wall_ns) as f64 / wall_ns as f64;
        parts.push(format!("{} {busy:.0}% busy", name(disk)));
    }
    sentence(&parts, ";", WIDTH)
}

fn name(disk: &DiskUse) -> String {
    cut(&terminal(&disk.name), NAME)
}

/// Failures, and requests that do not end.
fn wrong(interval: &Interval) -> Vec<String> {
    let mut wrong = Vec::new();
    for disk in &interval.disks {
        let failed: u64 = disk.failures.iter().map(|failures| failures.count).sum();
        if failed > 0 {
            let count = units::counted(failed, "requests");
            wrong.push(format!("{count} failed on {}", name(disk)));
        }
    }
    if let Some((count, oldest_ns @ STUCK_NS..)) = interval.under_way {
        let (count, age) = (
            units::counted(count, "requests"),
            units::duration(oldest_ns),
        );
        wrong.push(format!("{count} still in flight, the oldest for {age}"));
    }
    wrong
}

/// Percentiles of reads and of writes, or where there were neither, of all; in the phase that took longest.
fn latencies(args: &Args, interval: &Interval) -> String {
    let phases = by_share(args, interval);
    let Some((phase, _)) = phases.first().copied() else {
        let length = units::duration(interval.wall_ns());
        return format!("no requests in {length}");
    };
    let spell = |what: &str, histogram: &Histogram| {
        let [p50, p99] = [50.0, 99.0].map(|at| units::duration(histogram.percentile(at)));
        format!("{what} p50 {p50} p99 {p99}")
    };
    let of = |class, what| {
        let mut all = interval.by_class.iter();
        let found = all.find(|of| of.class == class && of.phase == phase)?;
        Some(spell(what, &found.histogram))
    };
    let both = [of(READ, "reads"), of(WRITE, "writes")].into_iter();
    let mut both: Vec<String> = both.flatten().collect();
    if both.is_empty() {
        both.push(spell(
            "requests",
            &latencies::in_phase(&interval.groups, phase),
        ));
    }
    // The table below has the phase where there is only one.
    match args.phases {
        true => format!("{} {}", both.join(", "), phase.title()),
        false => both.join(", "),
    }
}

/// Phases with the time that requests spent in each, ns, the longest first; none if there were no requests.
fn by_share(args: &Args, interval: &Interval) -> Vec<(Phase, u64)> {
    let sums = args.measured().iter().map(|&phase| {
        let all = latencies::in_phase(&interval.groups, phase);
        (phase, all.count(), all.sum())
    });
    let some = sums.filter(|(_, count, _)| *count > 0);
    let mut sums: Vec<(Phase, u64)> = some.map(|(phase, _, sum)| (phase, sum)).collect();
    sums.rank_by_key(|(_, sum)| Reverse(*sum));
    sums
}

/// Each phase's share of requests' time from the first to the last.
fn shares(args: &Args, interval: &Interval) -> Option<String> {
    let sums = by_share(args, interval);
    let all: u64 = sums.iter().map(|(_, sum)| sum).sum();
    let share = |(phase, sum): &(Phase, u64)| {
        let share = round_percent(*sum, all);
        format!("{share} {}", phase.title())
    };
    let shares: Vec<String> = sums.iter().map(share).collect();
    (args.phases && all > 0).then(|| format!("of their time {}", shares.join(", ")))
}

/// The process whose requests took most of the time, where processes are told apart.
fn whose(args: &Args, interval: &Interval) -> Option<String> {
    let mut processes: HashMap<u32, (u64, &str)> = HashMap::new();
    for group in interval.groups.iter().filter(|_| args.by_process) {
        let whole = &group.whole;
        let process = processes.entry(whole.id.tgid).or_insert((0, &*whole.comm));
        process.0 += whole.histogram.sum();
    }
    let all_ns = processes.values().map(|(ns, _)| ns).sum();
    let most = processes
        .into_iter()
        .max_by_key(|(tgid, (ns, _))| (*ns, *tgid));
    let (tgid, (ns, name)) = most.filter(|(_, (ns, _))| *ns > 0)?;
    let who = match tgid {
        labels::TGID_FLUSH => "flushes".into(),
        0 => "submitters not seen".into(),
        tgid => format!("{} {tgid}", comm(name)),
    };
    let share = round_percent(ns, all_ns);
    Some(format!("{share} of their time for {who}"))
}

fn busiest(interval: &Interval) -> Option<&DiskUse> {
    let wall_ns = interval.wall_ns();
    let mut disks: Vec<&DiskUse> = interval.disks.iter().collect();
    disks.rank_by_key(|disk| Reverse(disk.busy_ns(wall_ns)));
    disks.first().copied()
}

/// The line of the command that looks further.
pub(crate) fn next(args: &Args, interval: &Interval) -> String {
    let Some(disk) = busiest(interval) else {
        return Step::Shortages.line_for("", "what else is short");
    };
    let of_disk = match next::is_plain(&disk.name) {
        true => format!("-d {}", disk.name),
        false => String::new(),
    };
    // Its directory may be one of v1, which only block I/O knows.
    let of_whom = match args.targets.cgroup {
        Some(_) => String::new(),
        None => match chosen::options(&args.targets, next::is_there) {
            Some(of_whom) => of_whom,
            None => return Step::Shortages.line_for("", "what else is short"),
        },
    };
    if waits_before_device(args, interval) {
        return Step::Phases.line(format!("{of_disk} {of_whom}").trim());
    }
    if !args.by_process && args.is_everyones() {
        return Step::Disks.line_for(&of_disk, "whose I/O it is");
    }
    Step::WaitsInStateD.line_for(&of_whom, "who waits in state D, and where")
}

/// Looks whether requests spent more time on the way to the device than in it.
fn waits_before_device(args: &Args, interval: &Interval) -> bool {
    if args.measured() != [Phase::Device] {
        return false;
    }
    let in_device_ns = latencies::in_phase(&interval.groups, Phase::Device).sum();
    let classes = interval.disks.iter().flat_map(|disk| {
        // Flushes are the parts of sequences, which are there as writes already.
        [READ, WRITE, DISCARD].map(|class| disk.classes[class])
    });
    let total_ns: u64 = classes.map(|class| class.total_ns).sum();
    in_device_ns > 0 && total_ns > 2 * in_device_ns
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::biolatency::disk_use::Failures;
    use crate::biolatency::latencies::OfClass;

    fn histogram(ns: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        ns.iter().for_each(|ns| histogram.record(*ns));
        histogram
    }

    fn disk(name: &str, busy_ns: u64) -> DiskUse {
        DiskUse {
            name: name.into(),
            busy_ns,
            ..DiskUse::default()
        }
    }

    fn interval() -> Interval {
        let of = |class, ns: &[u64]| OfClass {
            class,
            phase: Phase::Device,
            histogram: histogram(ns),
        };
        let by_class = vec![
            of(READ, &[54_000, 54_000, 176_000]),
            of(WRITE, &[7_000_000]),
        ];
        let all = histogram(&[54_000, 54_000, 176_000, 7_000_000]);
        let groups = vec![latencies::tests::of_group(Phase::Device, all)];
        Interval {
            end_ns: 2_000_000_000,
            groups,
            by_class,
            disks: vec![disk("sda", 20_000_000), disk("nvme0n1", 1_500_000_000)],
            ..Interval::default()
        }
    }

    fn said(options: &str, interval: &Interval) -> Vec<String> {
        let line = format!("biolatency {options}");
        answer(&Args::parse_from(line.split_whitespace()), interval)
    }

    #[test]
    fn reads_and_writes_are_apart_and_the_busiest_disk_is_named() {
        let mut interval = interval();
        assert_eq!(
            said("", &interval),
            ["reads p50 54.3 us p99 176 us, writes p50 6.95 ms p99 6.95 ms; nvme0n1 75% busy"]
        );
        assert_eq!(said("-D", &interval), said("", &interval));
        interval.groups[0].whole.comm = "db".into();
        interval.groups[0].whole.id.tgid = 7;
        let whose = said("-P", &interval).join("");
        assert!(
            whose.contains(";  100% of their time for db 7; nvme0n1 75%"),
            "{whose}"
        );
        interval.by_class.clear();
        assert_eq!(
            said("", &interval),
            ["requests p50 54.3 us p99 6.95 ms; nvme0n1 75% busy"]
        );
        interval.groups.clear();
        interval.disks.pop();
        assert_eq!(said("", &interval), ["no requests in 2.00 s; sda 1% busy"]);
    }

    #[test]
    fn of_phases_the_longest_is_the_answer() {
        let mut interval = interval();
        let queued = histogram(&[90_000_000]);
        interval.by_class.push(OfClass {
            class: READ,
            phase: Phase::Queued,
            histogram: queued.clone(),
        });
        let queued = latencies::tests::of_group(Phase::Queued, queued);
        interval.groups.push(queued);
        assert_eq!(
            said("--phases", &interval),
            [
                "reads p50 90.0 ms p99 90.0 ms queued;",
                "  of their time 93% queued, 7% in the device; nvme0n1 75% busy"
            ]
        );
    }

    #[test]
    fn what_is_wrong_comes_first() {
        let mut interval = interval();
        interval.under_way = Some((3, STUCK_NS));
        let failures = |count| Failures {
            class: READ,
            status: 10,
            count,
        };
        interval.disks[0].failures = vec![failures(2), failures(5)];
        let said = said("", &interval);
        assert_eq!(
            said,
            [
                "7 requests failed on sda; 3 requests still in flight, the oldest for 1.00 s;",
                "  reads p50 54.3 us p99 176 us, writes p50 6.95 ms p99 6.95 ms; nvme0n1 75% busy",
            ]
        );
        interval.under_way = Some((3, STUCK_NS - 1));
        assert_eq!(wrong(&interval), ["7 requests failed on sda"]);
    }

    #[test]
    fn the_next_command_is_about_what_was_found() {
        let mut found = interval();
        let command = |options: &str, found: &Interval| {
            let line = format!("biolatency {options}");
            let line = next(&Args::parse_from(line.split_whitespace()), found);
            let (command, _) = line.split_once("   #").expect("an answer");
            command.trim_start_matches("next: ").to_owned()
        };
        assert_eq!(command("", &found), "biolatency -d nvme0n1 -P 5 1");
        assert_eq!(command("-P", &found), "offcputime --state 2 10");
        let own = std::process::id();
        assert_eq!(
            command(&format!("-p {own}"), &found),
            format!("offcputime --state 2 -p {own} 10")
        );
        found.disks[0].classes[WRITE].total_ns = 2 * 7_284_000;
        assert_eq!(command("", &found), "biolatency -d nvme0n1 -P 5 1");
        found.disks[1].classes[READ].total_ns = 1_000_000;
        assert_eq!(command("", &found), "biolatency -d nvme0n1 --phases 5 1");
        assert_eq!(command("-Q", &found), "biolatency -d nvme0n1 -P 5 1");
        found.disks[1].name = "cciss!c0d0".into();
        assert_eq!(command("-Q", &found), "biolatency -P 5 1");
        assert_eq!(command("", &Interval::default()), "pressure 5 1");
    }
}
