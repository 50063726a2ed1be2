//! What pressure says about an interval, for people: readable at a glance in 80 columns.

use std::io::{self, Write};

use host::clock::time_of_day;
use profile::escape::terminal;
use profile::table::{Column, Table};
use profile::text::{WIDTH, cut, cut_start, sentence};
use profile::units;

use crate::pressure::interval::{Interval, index_of};
use crate::pressure::look::Look;
use crate::pressure::psi::Resource;
use crate::pressure::waits::Waiting;
use crate::pressure::{sections, stacks};

/// Columns of a cgroup's path, and of a disk's name.
const PATH: usize = 40;
const NAME: usize = 10;
/// Pressed from this share of the time on, percent: below, nobody would notice.
const LEAST_PERCENT: f64 = 1.0;

/// Writes one interval.
pub(crate) fn write(interval: &Interval, look: Look, out: &mut impl Write) -> io::Result<()> {
    let pressed = interval.pressed(LEAST_PERCENT);
    let leading = interval.leading_waits(&pressed);
    let leads = !leading.is_empty();
    let waits = if leads { leading } else { interval.locks() };
    for line in verdict(interval, &pressed, waits.first().copied(), leads) {
        writeln!(out, "{}", look.style.bold(line))?;
    }
    write_table(interval, &pressed, look, out)?;
    let is_all = leads || pressed.is_empty();
    if leads {
        sections::write_waits(interval, &waits, is_all, look, out)?;
    }
    for resource in &pressed {
        sections::write(interval, *resource, look, out)?;
        if let Some(index) = index_of(*resource) {
            stacks::write(&interval.stacks, index, look.style, out)?;
        }
    }
    if !leads {
        sections::write_waits(interval, &waits, is_all, look, out)?;
    }
    crate::pressure::cgroup_table::write(&interval.cgroups, look.style, out)?;
    writeln!(out)
}

/// The answer; a line, or more where there is much to say. The wait goes first if it `leads`.
fn verdict(
    interval: &Interval,
    pressed: &[Resource],
    waiting: Option<&Waiting>,
    leads: bool,
) -> Vec<String> {
    let clock = units::duration(interval.length_ns());
    let time = time_of_day(interval.ended_unix_s);
    let whose = interval.cgroup.as_ref().map_or(String::new(), |path| {
        let path = path.display().to_string();
        format!(" in {}", cut_start(&terminal(&path), PATH))
    });
    let short = pressed.iter().map(|&resource| {
        let (what, extent) = (at_fault(interval, resource), extent(interval, resource));
        format!("{what} ({extent})")
    });
    let mut parts: Vec<String> = short.collect();
    match parts.first_mut() {
        Some(first) => first.insert_str(0, "short of "),
        None => parts.push("nothing is short".into()),
    }
    let last = parts.len() - 1;
    parts[..last].iter_mut().for_each(|part| part.push(','));
    if let Some(waiting) = waiting {
        let at = match leads && !pressed.is_empty() {
            true => 0,
            false => parts.len(),
        };
        parts.insert(at, sections::waits_for(waiting));
        let before = if at == 0 { 0 } else { last };
        parts[before].push(';');
    }
    parts.insert(0, format!("{time}  {clock}{whose}:"));
    sentence(&parts, "", WIDTH)
}

/// Name of what is short: the CPU's name is that of the quota where that is why.
fn at_fault(interval: &Interval, resource: Resource) -> String {
    match interval.quota_at_fault() {
        Some(quota) if resource == Resource::Cpu => format!("CPU quota of {}", quota.group.name()),
        _ => resource.name().into(),
    }
}

/// PSI's share of the time, or where it says nothing of those asked about, the tasks that waited at a time.
fn extent(interval: &Interval, resource: Resource) -> String {
    match interval.has_psi(resource) {
        true => format!("{:.0}% of the time", interval.pressure(resource)),
        false => format!(
            "{} threads waiting",
            units::three_digits(interval.pressure(resource) / 100.0)
        ),
    }
}

fn write_table(
    interval: &Interval,
    pressed: &[Resource],
    look: Look,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut table = Table::new([
        Column::left("", 7),
        Column::left("UTILISATION", 30),
        Column::right("SOME", 7),
        Column::right("FULL", 7),
        Column::right("AVG10", 7),
        Column::left("ERRORS", 0).gap(3),
    ]);
    let has_row = |resource: &Resource| {
        *resource != Resource::Irq || interval.psi[*resource as usize].is_some()
    };
    let resources: Vec<Resource> = Resource::ALL.into_iter().filter(has_row).collect();
    for &resource in &resources {
        let cells = [
            resource.name().into(),
            utilisation(interval, resource),
            percent(interval, resource, 0),
            percent(interval, resource, 1),
            avg10(interval, resource),
        ];
        table.fitted(cells, move |room| cut(&errors(interval, resource), room));
    }
    let (title, rows) = table.lines(WIDTH);
    writeln!(out, "{title}")?;
    for (resource, row) in resources.iter().zip(rows) {
        if pressed.contains(resource) {
            writeln!(out, "{}", look.style.bold(row))?;
        } else {
            writeln!(out, "{row}")?;
        }
    }
    let has_psi = interval.psi.iter().any(Option::is_some);
    if look.legend && has_psi {
        let legend =
            "SOME: share of the time that a task waited; FULL: all did; AVG10: SOME over 10 s";
        writeln!(out, "{}", look.style.dim(legend))?;
    }
    Ok(())
}

fn percent(interval: &Interval, resource: Resource, kind: usize) -> String {
    // A CPU that tasks wait for is running one: for the whole machine there is no such thing, and the kernel says 0.
    if resource == Resource::Cpu && kind == 1 && interval.cgroup.is_none() {
        return "-".into();
    }
    interval
        .percent(resource, kind)
        .map_or("-".into(), |percent| format!("{percent:.1}%"))
}

fn avg10(interval: &Interval, resource: Resource) -> String {
    let lost = interval.psi[resource as usize];
    lost.and_then(|lost| lost.some.or(lost.full))
        .map_or("-".into(), |share| format!("{:.1}%", share.avg10))
}

fn utilisation(interval: &Interval, resource: Resource) -> String {
    let usage = &interval.usage;
    match resource {
        Resource::Cpu if usage.steal_percent >= 1.0 => format!(
            "{:.0}% of {}, {:.0}% stolen",
            usage.busy_percent,
            units::counted(usage.cpus, "CPUs"),
            usage.steal_percent
        ),
        Resource::Cpu => format!(
            "{:.0}% of {}",
            usage.busy_percent,
            units::counted(usage.cpus, "CPUs")
        ),
        Resource::Memory => {
            let swapped = match usage.swapped_bytes {
                0 => String::new(),
                bytes => format!(", {} swapped", units::bytes(bytes)),
            };
            format!(
                "{:.0}% of {}{swapped}",
                usage.memory_used_percent,
                units::bytes(usage.memory_total_bytes)
            )
        }
        Resource::Io => match usage.disks.first() {
            Some(disk) => format!(
                "{} {:.0}% busy, {:.1} in flight",
                cut(&terminal(&disk.name), NAME),
                disk.busy_percent,
                disk.queue
            ),
            None => "no disk busy".into(),
        },
        Resource::Irq => format!("{:.1}% of CPU time", usage.irq_percent),
    }
}

fn errors(interval: &Interval, resource: Resource) -> String {
    match resource {
        Resource::Memory => interval
            .usage
            .oom_kills
            .map_or("?".into(), |kills| units::counted(kills, "OOM kills")),
        Resource::Io => interval
            .block_errors
            .map_or("?".into(), |errors| units::counted(errors, "failed")),
        Resource::Cpu | Resource::Irq => "-".into(),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
