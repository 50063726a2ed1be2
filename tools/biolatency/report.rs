//! What biolatency says about an interval.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bpf::biolatency::types::group_id;
use budget::cost::Cost;
use hist::harvest::Group;
use hist::hdr::HdrLog;
use hist::text;
use profile::escape::terminal;
use profile::rank::Rank;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{WIDTH, sentence};
use profile::units::{self, three_digits};
use session::cgroups;

use crate::biolatency::args::{Args, Phase};
use crate::biolatency::disk_use::{
    CLASSES, Class, DISCARD, DiskUse, FLUSH, PASSTHROUGH, PLURALS, READ, WRITE,
};
use crate::biolatency::harvest::Interval;
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
        for (heading, group) in self.groups(&HashMap::new()) {
            let tag = match (heading.is_empty(), self.args.phases) {
                (true, false) => None,
                (false, false) => Some(heading),
                (_, true) => {
                    let phase = Phase::of(group.id.phase).key();
                    Some(format!("{heading} {phase}").trim().to_owned())
                }
            };
            hdr.write(offset, length, tag.as_deref(), &group.histogram)?;
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

    /// Groups with their headings, sorted by those; a group's phases in the order of a request's life.
    fn groups(&self, cgroups: &HashMap<u64, PathBuf>) -> Vec<(String, &Group<group_id>)> {
        let (args, interval) = (self.args, self.interval);
        let order = |group: &Group<group_id>| {
            let phase = Phase::of(group.id.phase);
            args.measured()
                .iter()
                .position(|measured| *measured == phase)
        };
        let mut groups: Vec<(String, &Group<group_id>)> = interval
            .groups
            .iter()
            .map(|group| {
                (
                    labels::group(args, self.names, interval, group, cgroups),
                    group,
                )
            })
            .collect();
        groups.rank_by(|(a, group_a), (b, group_b)| {
            (a, group_a.id.tgid, order(group_a)).cmp(&(b, group_b.id.tgid, order(group_b)))
        });
        groups
    }

    fn write_human(&self, out: &mut impl Write) -> Result<()> {
        let paths = if self.args.by_cgroup {
            cgroups::block_paths()
        } else {
            HashMap::new()
        };
        for line in answer::answer(self.args, self.interval) {
            writeln!(out, "{line}")?;
        }
        write_classes(self.interval, out)?;
        write_disks(self.names, self.interval, out)?;
        if !self.args.is_grouped() {
            writeln!(out)?;
        }
        let mut last = String::new();
        for (heading, group) in self.groups(&paths) {
            if heading != last {
                writeln!(out, "\n{}", terminal(&heading))?;
                last = heading;
            }
            if self.args.phases {
                writeln!(out, "{}:", Phase::of(group.id.phase).title())?;
            }
            text::write(&group.histogram, self.args.histograms.unit(), out)?;
        }
        if self.interval.groups.is_empty() {
            writeln!(out, "\n     nothing recorded")?;
        }
        Ok(writeln!(
            out,
            "\n{}\n",
            answer::next(self.args, self.interval)
        )?)
    }
}

/// A row a kind of request and phase.
fn write_classes(interval: &Interval, out: &mut impl Write) -> Result<()> {
    if interval.by_class.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::left("", 31),
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
    Ok(table.write(usize::MAX, Style::Plain, out)?)
}

fn write_disks(names: &Names, interval: &Interval, out: &mut impl Write) -> Result<()> {
    if interval.disks.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::left("DISK", 12),
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
    let (title, lines) = table.lines(usize::MAX);
    writeln!(out, "\n{title}")?;
    for (disk, line) in interval.disks.iter().zip(lines) {
        writeln!(out, "{line}")?;
        write_remarks(names, disk, out)?;
    }
    Ok(())
}

fn cells(disk: &DiskUse, wall_ns: u64) -> [String; 9] {
    let seconds = wall_ns as f64 / 1e9;
    let rate = |class: &Class| rate(class.requests as f64 / seconds);
    let mib = |class: &Class| rate_text(class.bytes as f64 / seconds / (1 << 20) as f64);
    let busy = 100.0 * disk.busy_ns(wall_ns) as f64 / wall_ns as f64;
    let errors: u64 = disk.failures.iter().map(|failures| failures.count).sum();
    [
        terminal(&disk.name).into_owned(),
        rate(&disk.classes[READ]),
        mib(&disk.classes[READ]),
        rate(&disk.classes[WRITE]),
        mib(&disk.classes[WRITE]),
        rate(&disk.classes[FLUSH]),
        format!("{busy:.0}%"),
        three_digits(disk.queue_length(wall_ns)),
        units::count(errors),
    ]
}

fn rate_text(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else {
        three_digits(value)
    }
}

fn rate(value: f64) -> String {
    if value >= 1000.0 {
        units::count(value.round() as u64)
    } else {
        rate_text(value)
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
