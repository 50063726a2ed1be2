//! What biolatency says about an interval.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use budget::cost::Cost;
use hist::hdr::HdrLog;
use hist::text;
use profile::escape::terminal;
use profile::rank::Rank;
use profile::style::Style;
use profile::sums::sums;
use profile::table::{Column, Table};
use profile::text::{WIDTH, cut, sentence, write_lines};
use profile::units::{self, three_digits};
use session::cgroups;

use crate::biolatency::args::Args;
use crate::biolatency::disk_use::{
    CLASSES, Class, DISCARD, DiskUse, FLUSH, PASSTHROUGH, PLURALS, READ, WRITE,
};
use crate::biolatency::harvest::Interval;
use crate::biolatency::latencies::{OfClass, OfGroup};
use crate::biolatency::names::Names;
use crate::biolatency::{answer, json, labels};

/// One interval on its way out.
pub(crate) struct Report<'a> {
    pub(crate) args: &'a Args,
    pub(crate) names: &'a Names,
    pub(crate) interval: &'a Interval,
    /// Of the run so far.
    pub(crate) cost: Cost,
}

impl Report<'_> {
    /// Adds the interval to the HDR log; `run_start_ns` is where its times begin.
    pub(crate) fn write_hdr(&self, hdr: &mut HdrLog, run_start_ns: u64) -> Result<()> {
        // Though there may have been no request.
        hdr.begin()?;
        let interval = self.interval;
        let offset = Duration::from_nanos(interval.start_ns - run_start_ns);
        let length = Duration::from_nanos(interval.end_ns - interval.start_ns);
        for (heading, group) in self.groups((&HashMap::new(), usize::MAX)) {
            let heading = heading.join(", ");
            let tag = match (heading.is_empty(), self.args.phases) {
                (true, false) => None,
                (false, false) => Some(heading),
                (_, true) => {
                    let phase = group.phase().key();
                    Some(format!("{heading} {phase}").trim().to_owned())
                }
            };
            hdr.write(offset, length, tag.as_deref(), &group.whole.histogram)?;
        }
        Ok(())
    }

    /// Writes it to stdout.
    pub(crate) fn write(&self, out: &mut impl Write) -> Result<()> {
        let written = if self.args.common.json {
            let object = json::interval(self.args, self.names, self.interval, &self.cost);
            writeln!(out, "{object}").map_err(Into::into)
        } else {
            self.write_human(out)
        };
        written
            .and_then(|()| Ok(out.flush()?))
            .context("write to stdout")
    }

    /// Groups with their headings: what took longest first, disks by name; a group's phases in the order of a request's life.
    fn groups(&self, paths: (&HashMap<u64, PathBuf>, usize)) -> Vec<(Vec<String>, &OfGroup)> {
        let (args, interval) = (self.args, self.interval);
        let order = |group: &OfGroup| {
            let phases = args.measured().iter();
            let id = &group.whole.id;
            let place = phases.take_while(|phase| **phase != group.phase()).count();
            (id.disk, id.dev, id.cgroup, id.tgid, place)
        };
        let heading = |group| labels::group(args, self.names, interval, group, paths);
        let groups = interval.groups.iter();
        let mut groups: Vec<(Vec<String>, &OfGroup)> =
            groups.map(|group| (heading(&group.whole), group)).collect();
        let times = groups.iter();
        let times = times.map(|(heading, group)| (heading.clone(), group.whole.histogram.sum()));
        let sums = sums(times);
        let is_by_name = args.is_by_disk_only();
        let rank = |heading: &Vec<String>| Reverse(if is_by_name { 0 } else { sums[heading] });
        groups.rank_by(|(a, group_a), (b, group_b)| {
            (rank(a), a, order(group_a)).cmp(&(rank(b), b, order(group_b)))
        });
        groups
    }

    fn write_human(&self, out: &mut impl Write) -> Result<()> {
        let args = self.args;
        let paths = if args.by_cgroup {
            cgroups::block_paths()
        } else {
            HashMap::new()
        };
        write_lines(answer::answer(args, self.interval), out)?;
        write_classes(self.interval, out)?;
        write_disks(self.names, self.interval, out)?;
        self.write_groups(&paths, out)?;
        Ok(writeln!(out, "\n{}\n", answer::next(args, self.interval))?)
    }

    fn write_groups(&self, paths: &HashMap<u64, PathBuf>, out: &mut impl Write) -> Result<()> {
        let args = self.args;
        if !args.is_grouped() {
            writeln!(out)?;
        }
        let width = match args.common.verbose {
            true => usize::MAX,
            false => WIDTH - 2,
        };
        let mut last = Vec::new();
        for (heading, group) in self.groups((paths, width)) {
            if heading != last {
                writeln!(out)?;
                write_heading(&heading, width, out)?;
                last = heading;
            }
            if args.phases {
                writeln!(out, "{}:", group.phase().title())?;
            }
            let kinds: Vec<String> = group.by_class.iter().map(of_kind).collect();
            for line in sentence(&kinds, ",", WIDTH - 2) {
                writeln!(out, "  {line}")?;
            }
            text::write(&group.whole.histogram, args.histograms.unit(), out)?;
        }
        if self.interval.groups.is_empty() {
            writeln!(out, "\n     nothing recorded")?;
        }
        Ok(())
    }
}

fn write_heading(heading: &[String], width: usize, out: &mut impl Write) -> Result<()> {
    // Room for a comma behind each.
    let fit = |part: &String| cut(&terminal(part), width.saturating_sub(1));
    let parts: Vec<String> = heading.iter().map(fit).collect();
    Ok(write_lines(sentence(&parts, ",", WIDTH), out)?)
}

/// `3,004 reads p50 54.3 us p99 176 us`
fn of_kind(of: &OfClass) -> String {
    let [p50, p99] = [50.0, 99.0].map(|at| units::duration(of.histogram.percentile(at)));
    let requests = units::counted(of.histogram.count(), PLURALS[of.class]);
    format!("{requests} p50 {p50} p99 {p99}")
}

/// A row a kind of request and phase.
fn write_classes(interval: &Interval, out: &mut impl Write) -> Result<()> {
    if interval.by_class.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::left("", 31).yielding(),
        Column::right("REQUESTS", 9),
        Column::right("AVG", 8),
        Column::right("P50", 8),
        Column::right("P99", 8),
        Column::right("MAX", 8),
    ]);
    for of in &interval.by_class {
        let sum = &of.histogram;
        let ns = [
            sum.mean(),
            sum.percentile(50.0),
            sum.percentile(99.0),
            sum.max(),
        ];
        let mut cells = vec![
            format!("{:<8} {}", PLURALS[of.class], of.phase.title()),
            units::count(sum.count()),
        ];
        cells.extend(ns.map(units::duration));
        table.row(cells);
    }
    writeln!(out)?;
    Ok(table.write(WIDTH, Style::Plain, out)?)
}

fn write_disks(names: &Names, interval: &Interval, out: &mut impl Write) -> Result<()> {
    if interval.disks.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::left("DISK", 12).yielding(),
        Column::right("READ/s", 8),
        Column::right("rMiB/s", 7),
        Column::right("WRITE/s", 8),
        Column::right("wMiB/s", 7),
        Column::right("FLUSH/s", 8),
        Column::right("BUSY", 5),
        Column::right("INFLIGHT", 8),
        Column::right("ERRORS", 6),
    ]);
    let wall_ns = interval.wall_ns();
    for disk in &interval.disks {
        table.row(cells(disk, wall_ns));
    }
    let (title, lines) = table.lines(WIDTH);
    writeln!(out, "\n{title}")?;
    for (disk, line) in interval.disks.iter().zip(lines) {
        writeln!(out, "{line}")?;
        write_remarks(names, disk, out)?;
    }
    Ok(())
}

fn cells(disk: &DiskUse, wall_ns: u64) -> [String; 9] {
    let seconds = wall_ns as f64 / 1e9;
    let requests = |class: &Class| rate(class.requests as f64 / seconds);
    let mib = |class: &Class| rate(class.bytes as f64 / seconds / (1 << 20) as f64);
    let busy = 100.0 * disk.busy_ns(wall_ns) as f64 / wall_ns as f64;
    let errors: u64 = disk.failures.iter().map(|failures| failures.count).sum();
    [
        terminal(&disk.name).into_owned(),
        requests(&disk.classes[READ]),
        mib(&disk.classes[READ]),
        requests(&disk.classes[WRITE]),
        mib(&disk.classes[WRITE]),
        requests(&disk.classes[FLUSH]),
        format!("{busy:.0}%"),
        three_digits(disk.queue_length(wall_ns)),
        units::count(errors),
    ]
}

fn rate(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else {
        three_digits(value)
    }
}

/// What is not in the columns, where there is any.
fn write_remarks(names: &Names, disk: &DiskUse, out: &mut impl Write) -> Result<()> {
    for failures in &disk.failures {
        let (class, status) = (
            CLASSES[failures.class.min(4)],
            names.status(failures.status),
        );
        let count = units::count(failures.count);
        writeln!(
            out,
            "  failed: {count} {class}: {} error",
            terminal(&status)
        )?;
    }
    let merged = disk.whole.map_or(0, |whole| whole.merged);
    let in_flight = disk.whole.map_or(0, |whole| whole.in_flight);
    let counts = [
        (disk.classes[DISCARD].requests, PLURALS[DISCARD]),
        (disk.classes[PASSTHROUGH].requests, PLURALS[PASSTHROUGH]),
        (merged, "merged"),
        (disk.partial, "partial completions"),
        (disk.requeued, "requeued (driver queue full)"),
        (in_flight, "in flight now"),
    ];
    let parts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| units::counted(*count, what))
        .collect();
    for line in sentence(&parts, ",", WIDTH - 2) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
