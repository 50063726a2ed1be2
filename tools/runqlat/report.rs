//! What runqlat says about an interval.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bpf::runqlat::types::group_id;
use budget::cost::Cost;
use hist::harvest::Group as Waits;
use hist::hdr::HdrLog;
use hist::text;
use profile::escape::terminal;
use profile::rank::Rank;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{WIDTH, comm, cut, round_percent, write_lines};
use profile::units;
use serde_json::{Value, json};
use session::cgroups;
use session::quotas::UsedUp;

use crate::runqlat::answer;
use crate::runqlat::args::{Args, Group};
use crate::runqlat::harvest::Interval;
use crate::runqlat::quota;

/// Tasks named as waited behind.
const TOP_CULPRITS: usize = 10;
/// Waits not yet over that are named.
const TOP_OPEN: usize = 3;

/// Writes one interval, and in JSON what the run has cost so far; `run_start_ns` is where the HDR log's times begin.
pub(crate) fn write(
    args: &Args,
    (interval, cost): (&Interval, &Cost),
    hdr: Option<&mut HdrLog>,
    run_start_ns: u64,
    out: &mut impl Write,
) -> Result<()> {
    if let Some(hdr) = hdr {
        // Though no group may have waited.
        hdr.begin()?;
        let offset = Duration::from_nanos(interval.start_ns - run_start_ns);
        let length = Duration::from_nanos(interval.end_ns - interval.start_ns);
        for waits in &interval.waits {
            let tag = (args.group() != Group::Machine)
                .then(|| label(args.group(), waits, (&HashMap::new(), usize::MAX)));
            hdr.write(offset, length, tag.as_deref(), &waits.histogram)?;
        }
    }
    let written = if args.common.json {
        writeln!(out, "{}", to_json(args, interval, cost)).map_err(Into::into)
    } else {
        write_human(args, interval, out)
    };
    written
        .and_then(|()| Ok(out.flush()?))
        .context("write to stdout")
}

pub(crate) fn write_human(args: &Args, interval: &Interval, out: &mut impl Write) -> Result<()> {
    let is_answer = quota::is_at_fault(interval);
    if is_answer {
        quota::write(interval, out)?;
    }
    write_lines(answer::answer(interval), out)?;
    if !is_answer {
        quota::write(interval, out)?;
    }
    let cgroups = if args.group() == Group::Cgroup {
        cgroups::paths()
    } else {
        HashMap::new()
    };
    let width = match args.common.verbose {
        true => usize::MAX,
        false => WIDTH,
    };
    let waited = |waits: &&Waits<group_id>| waits.histogram.count() > 0;
    let mut groups: Vec<_> = interval.waits.iter().filter(waited).collect();
    // CPUs have an order that people know; of the rest the one that waited longest matters most.
    if args.group() != Group::Cpu {
        groups.rank_by_key(|waits| Reverse(waits.histogram.sum()));
    }
    for waits in groups {
        if args.group() != Group::Machine {
            let label = label(args.group(), waits, (&cgroups, width));
            writeln!(out, "\n{}", cut(&terminal(&label), width))?;
        }
        text::write(&waits.histogram, args.histograms.unit(), out)?;
    }
    if let Some(estimates) = &interval.estimates {
        writeln!(out, "{}", estimates.describe("waits"))?;
    }
    write_culprits(interval, out)?;
    for open in interval.open.iter().take(TOP_OPEN) {
        writeln!(
            out,
            "still waiting: {} {} for {}",
            comm(&open.comm),
            open.tid,
            units::duration(open.wait_ns)
        )?;
    }
    for ready in interval.ready.iter().take(TOP_OPEN) {
        writeln!(out, "never ran: {} {}", comm(&ready.comm), ready.tid)?;
    }
    if interval.ready.len() > TOP_OPEN {
        writeln!(out, "never ran: {} more", interval.ready.len() - TOP_OPEN)?;
    }
    if interval.open.len() > TOP_OPEN {
        writeln!(
            out,
            "still waiting: {} more",
            interval.open.len() - TOP_OPEN
        )?;
    }
    Ok(writeln!(out, "\n{}\n", answer::next(args, interval))?)
}

fn write_culprits(interval: &Interval, out: &mut impl Write) -> Result<()> {
    if interval.culprits.is_empty() {
        return Ok(());
    }
    let title = match quota::is_at_fault(interval) {
        true => "RAN MEANWHILE",
        false => "WAITED BEHIND",
    };
    let mut table = Table::new([
        Column::right("TIME", 10),
        Column::right("SHARE", 6),
        Column::right("WAITS", 9),
        Column::left(title, 0),
    ]);
    // Time of waits that found no room in the tables is not in the sum.
    let sum_ns: u64 = interval
        .waits
        .iter()
        .map(|waits| waits.histogram.sum())
        .sum();
    let share = |caused_ns: u64| round_percent(caused_ns.min(sum_ns), sum_ns);
    for culprit in interval.culprits.iter().take(TOP_CULPRITS) {
        let comm = comm(&culprit.comm);
        let who = match (culprit.tid, culprit.tgid) {
            (0, _) => format!("{comm} (not recorded)"),
            (tid, tgid) if tid == tgid => format!("{comm} (pid {tgid})"),
            (tid, tgid) => format!("{comm} (pid {tgid}, tid {tid})"),
        };
        let time = units::duration(culprit.caused_ns);
        let waits = units::count(culprit.waits);
        table.row([time, share(culprit.caused_ns), waits, who]);
    }
    let rest = interval.culprits.get(TOP_CULPRITS..).unwrap_or_default();
    if !rest.is_empty() {
        let caused_ns = rest.iter().map(|culprit| culprit.caused_ns).sum();
        let waits = units::count(rest.iter().map(|culprit| culprit.waits).sum());
        let who = units::counted(rest.len() as u64, "more tasks");
        table.row([units::duration(caused_ns), share(caused_ns), waits, who]);
    }
    writeln!(out)?;
    Ok(table.write(usize::MAX, Style::Plain, out)?)
}

/// A group's heading. A path takes what `width` columns leave for it.
fn label(
    group: Group,
    waits: &Waits<group_id>,
    (paths, width): (&HashMap<u64, PathBuf>, usize),
) -> String {
    match group {
        Group::Machine => String::new(),
        Group::Process => format!("pid = {} {}", waits.id.id, waits.comm),
        Group::Thread => format!("tid = {} {}", waits.id.id, waits.comm),
        Group::Cpu => format!("cpu = {}", waits.id.id),
        Group::Cgroup => cgroups::heading(waits.id.id, paths, width),
    }
}

/// `{"tool", "start_ns", "end_ns", "groups": [{"pid"|"tid"|"cpu"|"cgroup"?, "comm"?, histogram…}], "behind": […], "quotas": […],
/// "without_quota": {"waits", "sum_ns"}, "still_waiting": […], "never_ran": […], "under_way_at_start", "losses": {…}, "cost": {…}}`, the last three since the start of the run.
fn to_json(args: &Args, interval: &Interval, cost: &Cost) -> Value {
    let groups: Vec<Value> = interval
        .waits
        .iter()
        .map(|waits| group_json(args.group(), waits))
        .collect();
    let behind: Vec<Value> = interval
        .culprits
        .iter()
        .map(|culprit| {
            json!({"comm": *culprit.comm, "pid": culprit.tgid, "tid": culprit.tid,
                   "caused_ns": culprit.caused_ns, "waits": culprit.waits})
        })
        .collect();
    let quotas: Vec<Value> = interval.quotas.iter().map(UsedUp::to_json).collect();
    let open: Vec<Value> = interval
        .open
        .iter()
        .map(|open| json!({"comm": *open.comm, "tid": open.tid, "wait_ns": open.wait_ns}))
        .collect();
    let never_ran: Vec<Value> = interval
        .ready
        .iter()
        .map(|ready| json!({"comm": *ready.comm, "tid": ready.tid, "without_quota": ready.without_quota}))
        .collect();
    let mut object = json!({
        "tool": "runqlat",
        "version": env!("CARGO_PKG_VERSION"),
        "start_ns": interval.start_ns,
        "end_ns": interval.end_ns,
        "groups": groups,
        "behind": behind,
        "quotas": quotas,
        "without_quota": {
            "waits": interval.without_quota.waits,
            "sum_ns": interval.without_quota.sum_ns,
        },
        "still_waiting": open,
        "never_ran": never_ran,
        "under_way_at_start": interval.under_way_at_start,
        "losses": interval.losses.to_json(),
        "cost": cost.to_json(),
    });
    if let Some(estimates) = &interval.estimates {
        object["estimates"] = estimates.to_json();
    }
    object
}

fn group_json(group: Group, waits: &Waits<group_id>) -> Value {
    let mut object = waits.histogram.to_json();
    let key = match group {
        Group::Machine => return object,
        Group::Process => "pid",
        Group::Thread => "tid",
        Group::Cpu => "cpu",
        Group::Cgroup => "cgroup",
    };
    object[key] = waits.id.id.into();
    if matches!(group, Group::Process | Group::Thread) {
        object["comm"] = (*waits.comm).into();
    }
    object
}
