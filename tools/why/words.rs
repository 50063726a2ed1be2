//! Words for programs, functions and disks.

use profile::escape::terminal;
use profile::text::{columns, comm, cut, cut_name};
use profile::units;

use crate::biolatency::Phase;
use crate::why::kinds::Program;

/// Columns of a function's name.
const NAME: usize = 40;
/// Columns in which a name still tells something.
const LEAST: usize = 12;
/// Columns of a disk's name.
const DISK: usize = 16;

/// Words for a program.
pub(crate) fn program((name, pid): &Program) -> String {
    match pid {
        0 => comm(name),
        pid => format!("{} {pid}", comm(name)),
    }
}

/// Words for one process, or for several of its name.
pub(crate) fn processes(first: &Program, number: usize) -> String {
    match number {
        0 | 1 => program(first),
        _ => format!(
            "{} processes of {}",
            units::count(number as u64),
            comm(&first.0)
        ),
    }
}

/// Words for a function's name.
pub(crate) fn function(name: &str) -> String {
    cut_name(&terminal(name), NAME)
}

/// Words that end with a function's name, and perhaps with how many others there are, cut to a width.
pub(crate) fn fit(words: &str, width: usize) -> String {
    let others = words.rsplit_once(" +");
    if let Some((words, others)) = others.filter(|(_, others)| others.parse::<u32>().is_ok()) {
        let others = format!(" +{others}");
        return fit(words, width.saturating_sub(others.len())) + &others;
    }
    let name = words.rsplit_once(' ').filter(|_| !words.contains(", "));
    match name.map(|(before, name)| (columns(before) + 1, before, name)) {
        Some((used, before, name)) if used + LEAST <= width => {
            format!("{before} {}", cut_name(name, width - used))
        }
        _ => cut(words, width),
    }
}

/// A disk's name for a terminal.
pub(crate) fn disk(name: &str) -> String {
    cut(&terminal(name), DISK)
}

/// Words for a place of requests: `in vda's device`.
pub(crate) fn place(disk: &str, phase: Phase) -> String {
    let disk = self::disk(disk);
    match phase {
        Phase::Device => format!("in {disk}'s device"),
        Phase::Queued => format!("queued for {disk}"),
        Phase::Before => format!("before the queue of {disk}"),
        Phase::Total => format!("on {disk}"),
    }
}
