//! What pressure says about an interval, for people: readable at a glance in 80 columns.

use std::io::{self, Write};

use profile::escape::terminal;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::shorten;
use profile::units;
use session::next;

use crate::pressure::hints;
use crate::pressure::interval::{Interval, index_of};
use crate::pressure::parties::Party;
use crate::pressure::psi::Resource;
use crate::pressure::ranking::{self, Ranked};
use crate::pressure::stacks;

/// Pressed from this share of the time on, percent: below, nobody would notice.
const LEAST_PERCENT: f64 = 1.0;
/// Victims and culprits shown.
const TOP: usize = 6;
/// Columns in all, and of a hint.
const WIDTH: usize = 80;
const HINT: usize = 46;
/// Columns of a name.
const NAME: usize = 28;

/// How it looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) style: Style,
    /// The columns are explained.
    pub(crate) legend: bool,
    /// The tasks' time is of those asked for, not of all that PSI speaks of.
    pub(crate) is_filtered: bool,
}

/// Writes one interval.
pub(crate) fn write(interval: &Interval, look: Look, out: &mut impl Write) -> io::Result<()> {
    let pressed = interval.pressed(LEAST_PERCENT);
    let verdict = verdict(interval, &pressed);
    writeln!(out, "{}", look.style.bold(verdict))?;
    write_table(interval, &pressed, look, out)?;
    for resource in &pressed {
        write_parties(interval, *resource, look, out)?;
        if let Some(index) = index_of(*resource) {
            stacks::write(&interval.stacks, index, look.style, out)?;
        }
    }
    crate::pressure::cgroup_table::write(&interval.cgroups, look.style, out)?;
    writeln!(out)
}

/// The line that says it all.
fn verdict(interval: &Interval, pressed: &[Resource]) -> String {
    let clock = units::duration(interval.length_ns());
    let time = clock_time(interval.ended_unix_s);
    let whose = interval.cgroup.as_ref().map_or(String::new(), |path| {
        format!(" in {}", terminal(&path.display().to_string()))
    });
    let short: Vec<String> = pressed
        .iter()
        .map(|resource| format!("{} ({})", name(*resource), extent(interval, *resource)))
        .collect();
    if short.is_empty() {
        return format!("{time}  {clock}{whose}: nothing is short");
    }
    format!("{time}  {clock}{whose}: short of {}", short.join(", "))
}

/// PSI's share of the time, or without PSI the tasks that waited at a time.
fn extent(interval: &Interval, resource: Resource) -> String {
    match interval.psi[resource as usize] {
        Some(_) => format!("{:.0}%", interval.pressure(resource)),
        None => format!(
            "{} tasks waiting",
            units::three_digits(interval.pressure(resource) / 100.0)
        ),
    }
}

/// Local time of day.
fn clock_time(unix_s: u64) -> String {
    let seconds = libc::time_t::try_from(unix_s).unwrap_or(0);
    // SAFETY: all-zero is a valid tm; localtime_r fills it.
    let local = unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut local);
        local
    };
    format!(
        "{:02}:{:02}:{:02}",
        local.tm_hour, local.tm_min, local.tm_sec
    )
}

fn name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Memory => "memory",
        Resource::Io => "disk",
        Resource::Irq => "irq",
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
        table.row([
            name(resource).into(),
            utilisation(interval, resource),
            percent(interval, resource, 0),
            percent(interval, resource, 1),
            avg10(interval, resource),
            errors(interval, resource),
        ]);
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
            "SOME: part of the time a task waited; FULL: all did; AVG10: SOME over about 10 s";
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
                "{:.0}% of {}, queue {:.1}",
                disk.busy_percent,
                terminal(&disk.name),
                disk.queue
            ),
            None => "0%".into(),
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

/// Who lost and who caused, side by side, then what to ask next.
fn write_parties(
    interval: &Interval,
    resource: Resource,
    look: Look,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out)?;
    let Some(index) = index_of(resource) else {
        return write_hints(interval, resource, (None, None), look, out);
    };
    writeln!(
        out,
        "{}",
        look.style.bold(heading(interval, resource, index, look))
    )?;
    let victims = ranking::victims(interval, index);
    let culprits = ranking::culprits(interval, index);
    let (left, right) = (half(&victims), half(&culprits));
    let titles = match resource {
        Resource::Cpu => ("CAUSED", "CULPRIT (ran meanwhile)"),
        Resource::Memory => ("TOOK", "CULPRIT (touched or read it)"),
        _ => ("MOVED", "CULPRIT (read or wrote it)"),
    };
    let mut table = Table::new([
        Column::right("LOST", 8),
        Column::left("VICTIM", NAME),
        Column::right(titles.0, 8).gap(2),
        Column::left(titles.1, 0),
    ]);
    for row in 0..left.len().max(right.len()) {
        let halves = [&left, &right].map(|half| half.get(row).cloned().unwrap_or_default());
        table.row(halves.concat());
    }
    table.write(WIDTH, Style::Plain, out)?;
    let parties = (ranking::lasting(&victims), ranking::lasting(&culprits));
    write_hints(interval, resource, parties, look, out)
}

/// What tasks lost beside what PSI says: each task counts for itself, PSI counts a moment once.
fn heading(interval: &Interval, resource: Resource, index: usize, look: Look) -> String {
    let lost = units::duration(interval.task_ns[index]);
    let what = match resource {
        Resource::Cpu => "waiting for a CPU",
        Resource::Memory => "for want of memory",
        _ => "waiting for disks",
    };
    let head = format!("{}: {lost} lost {what}", name(resource));
    let Some(at_a_time) = interval.tasks_at_a_time(resource) else {
        return head;
    };
    if look.is_filtered || interval.task_ns[index] == 0 {
        return head;
    }
    let head = format!("{head}, {} tasks at a time", units::three_digits(at_a_time));
    let some = interval.psi[resource as usize].and_then(|psi| psi.some);
    let Some(some) = some.filter(|some| some.lost_ns > 0) else {
        return head;
    };
    let ratio = interval.task_ns[index] as f64 / some.lost_ns as f64;
    format!(
        "{head} ({ratio:.1} x PSI {})",
        units::duration(some.lost_ns)
    )
}

/// Values and names.
fn half(ranked: &[Ranked<'_>]) -> Vec<[String; 2]> {
    let shown = ranked.iter().take(TOP);
    shown
        .map(|ranked| [ranked.value.clone(), shorten(&ranked.name, NAME)])
        .chain(ranking::rest(ranked, TOP))
        .collect()
}

fn write_hints(
    interval: &Interval,
    resource: Resource,
    (victim, culprit): (Option<&Party>, Option<&Party>),
    look: Look,
    out: &mut impl Write,
) -> io::Result<()> {
    for hint in hints::hints(interval, resource, victim, culprit) {
        let mut line = format!("    next: {}", next::runnable(&hint.command));
        let answers = format!("# {}", hint.answers);
        // A command goes before its explanation.
        if line.len() + answers.len() < WIDTH {
            let width = HINT.min(WIDTH - answers.len() - 1);
            line = format!("{line:<width$} {answers}");
        }
        writeln!(out, "{}", look.style.dim(line))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
