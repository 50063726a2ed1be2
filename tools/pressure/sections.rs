//! Text below the table: a section for each resource that is short, and one for what else threads wait for.

use std::io::{self, Write};

use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{WIDTH, comm, shorten};
use profile::units;
use session::{next, quotas};

use crate::pressure::hints::{self, Hint};
use crate::pressure::interval::{Interval, index_of};
use crate::pressure::look::Look;
use crate::pressure::psi::Resource;
use crate::pressure::ranking::{self, Ranked, TOP};
use crate::pressure::waits::Waiting;

/// Columns of a hint.
const HINT: usize = 46;

/// Victims and culprits of a resource, two lists, and what to ask next.
pub(crate) fn write(
    interval: &Interval,
    resource: Resource,
    look: Look,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out)?;
    let Some(index) = index_of(resource) else {
        return write_hints(&hints::of_resource(interval, resource), look, out);
    };
    let heading = heading(interval, resource, index);
    writeln!(out, "{}", look.style.bold(heading))?;
    if resource == Resource::Cpu {
        write_quotas(interval, out)?;
    }
    let victims = ranking::folded(ranking::victims(interval, index));
    let culprits = ranking::folded(ranking::culprits(interval, index));
    let titles = match resource {
        Resource::Cpu => ("CAUSED", "CULPRITS (ran while others waited)"),
        Resource::Memory => ("TOOK", "CULPRITS (touched or read it)"),
        _ => ("MOVED", "CULPRITS (read or wrote it)"),
    };
    write_list(("LOST", "VICTIMS"), &victims, out)?;
    write_list(titles, &culprits, out)?;
    write_hints(&hints::of_resource(interval, resource), look, out)
}

/// Threads' losses beside what PSI says: each thread counts for itself, PSI counts a moment once.
fn heading(interval: &Interval, resource: Resource, index: usize) -> String {
    let lost = units::duration(interval.task_ns[index]);
    let what = match resource {
        Resource::Cpu => "waiting for a CPU",
        Resource::Memory => "for want of memory",
        _ => "waiting for disks",
    };
    let head = format!("{}: threads lost {lost} {what}", resource.name());
    let Some(at_a_time) = interval.tasks_at_a_time(resource) else {
        return head;
    };
    if interval.is_filtered || interval.task_ns[index] == 0 {
        return head;
    }
    let head = format!("{head}, {} at a time", units::three_digits(at_a_time));
    let some = interval.psi[resource as usize].and_then(|psi| psi.some);
    let Some(some) = some.filter(|some| some.lost_ns > 0) else {
        return head;
    };
    format!("{head} (PSI {})", units::duration(some.lost_ns))
}

/// The quota that most of it was for, of whatever part of the time. All tasks' time is known, not that of those asked for.
fn write_quotas(interval: &Interval, out: &mut impl Write) -> io::Result<()> {
    let Some(quota) = interval.quotas.first() else {
        return Ok(());
    };
    let [whose, how] = quota.group.describe();
    let time = match (interval.is_filtered, interval.quota_at_fault()) {
        (false, _) => format!("{} of it ", units::duration(interval.throttled_ns)),
        (true, Some(_)) => String::new(),
        (true, None) => "some of it ".into(),
    };
    writeln!(out, "  {time}for want of {whose}:")?;
    writeln!(out, "  {how}")?;
    match quotas::more(interval.quotas.len()) {
        Some(line) => writeln!(out, "{line}"),
        None => Ok(()),
    }
}

/// Values and names.
fn write_list(
    (value, title): (&str, &str),
    ranked: &[Ranked<'_>],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut table = Table::new([Column::right(value, 10), Column::left(title, 0)]);
    for ranked in ranked.iter().take(TOP) {
        table.fitted([ranked.value.clone()], |width| shorten(&ranked.name, width));
    }
    if let Some(rest) = ranking::rest(ranked, TOP) {
        table.row(rest);
    }
    table.write(WIDTH, Style::Plain, out)
}

fn write_hints(hints: &[Hint], look: Look, out: &mut impl Write) -> io::Result<()> {
    for hint in hints {
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

/// `db 7 waits for locks (1.80 threads at a time)`
pub(crate) fn waits_for(waiting: &Waiting) -> String {
    let at_a_time = units::three_digits(waiting.at_a_time);
    let who = comm(&waiting.comm);
    let what = what(waiting);
    format!(
        "{who} {} waits for {what} ({at_a_time} threads at a time)",
        waiting.tgid
    )
}

fn what(waiting: &Waiting) -> &'static str {
    use host::waits::Reason;

    match waiting.reason {
        Reason::Futex if waiting.is_lock => "locks",
        Reason::Futex => "a futex",
        Reason::Lock => "kernel locks",
        Reason::FileLock => "file locks",
        Reason::Semaphore => "semaphores",
        Reason::BlockIo => "disks",
        Reason::PageFault => "page faults",
        Reason::Poll | Reason::Epoll => "descriptors (poll)",
        Reason::Socket => "sockets",
        Reason::Pipe => "pipes",
        Reason::MessageQueue => "message queues",
        Reason::KernelWork => "work of the kernel",
        Reason::Eventfd => "events (eventfd)",
        Reason::Device => "terminals or other devices",
        Reason::Inotify => "changes of files",
        Reason::Wait => "children or signals",
        _ => "something else",
    }
}

/// Says that the list may lack some.
fn write_not_looked_at(threads: u64, out: &mut impl Write) -> io::Result<()> {
    match threads {
        0 => Ok(()),
        1 => writeln!(out, "  1 thread was not looked at, for the sake of cost"),
        n => {
            let threads = units::count(n);
            writeln!(
                out,
                "  {threads} threads were not looked at, for the sake of cost"
            )
        }
    }
}

/// Waits of threads for what is no resource: all of it where nothing short is larger (`is_all`), locks otherwise.
pub(crate) fn write_waits(
    interval: &Interval,
    wanted: &[&Waiting],
    is_all: bool,
    look: Look,
    out: &mut impl Write,
) -> io::Result<()> {
    let undecided = interval.undecided();
    if !wanted.is_empty() {
        let looks = units::counted(interval.waits.looks, "looks");
        let which = match is_all {
            true => "waits that are not idle",
            false => "waits for locks and semaphores",
        };
        let at = match interval.waits.not_looked_at {
            0 => "at all threads",
            _ => "at threads",
        };
        let heading = format!("{which}, from {looks} {at}:");
        writeln!(out, "\n{}", look.style.bold(heading))?;
        let mut table = Table::new([
            Column::right("THREADS", 10),
            Column::left("FOR", 22),
            Column::left("PROCESS", 0),
        ]);
        for row in wanted.iter().take(TOP) {
            let process = format!("{} {}", comm(&row.comm), row.tgid);
            let mean = units::three_digits(row.at_a_time);
            table.row([mean, what(row).into(), process]);
        }
        if let Some(rest) = wanted.get(TOP..).filter(|rest| !rest.is_empty()) {
            let mean = rest.iter().map(|row| row.at_a_time).sum();
            let more = format!("{} more", rest.len());
            table.row([units::three_digits(mean), String::new(), more]);
        }
        table.write(WIDTH, Style::Plain, out)?;
    } else if is_all || undecided.is_some() {
        writeln!(out)?;
    }
    if is_all || !wanted.is_empty() {
        write_not_looked_at(interval.waits.not_looked_at, out)?;
    }
    let lasting = wanted.iter().filter(|row| next::is_there(row.tgid));
    let mut hints: Vec<Hint> = lasting.take(1).map(|row| hints::of_waits(row)).collect();
    if let Some(row) = undecided {
        let (process, mean) = (comm(&row.comm), units::three_digits(row.at_a_time));
        writeln!(
            out,
            "  {process} {}: {mean} threads at a time wait for a futex:",
            row.tgid
        )?;
        writeln!(out, "    for work, or for a lock made of it")?;
        hints.push(hints::of_undecided(row));
    } else if hints.is_empty() && (is_all || !wanted.is_empty()) {
        hints.push(hints::of_idle(interval.asked));
    }
    write_hints(&hints, look, out)
}
