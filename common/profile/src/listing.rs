//! The heaviest stacks, for people.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use crate::escape::terminal;
use crate::folded::Idle;
use crate::frame::Frame;
use crate::model::{Profile, Sample, Waker};
use crate::units;

/// How the list looks.
#[derive(Clone, Copy, Debug)]
pub struct ListOptions {
    /// Stacks shown; what is left out is summed up.
    pub top: usize,
    /// Idle waits: folded into one line, shown, or shown alone.
    pub idle: Idle,
    /// Values are ns, not counts.
    pub is_time: bool,
    /// Each value by its name, not their sum alone.
    pub split: bool,
    /// Bold headings.
    pub color: bool,
}

/// Threads of a process with the same stack count as one line; stacks are the same when their names are.
type Key<'a> = (&'a str, u32, Option<&'static str>, Vec<&'a str>);

#[derive(Default)]
struct Entry<'a> {
    values: Vec<u64>,
    count: u64,
    tids: HashSet<u32>,
    sample: Option<&'a Sample>,
}

impl Entry<'_> {
    fn total(&self) -> u64 {
        self.values.iter().sum()
    }
}

/// Writes the heaviest stacks, heaviest first, leaf at the top as bcc has it.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, options: &ListOptions, out: &mut impl Write) -> io::Result<()> {
    let (idle, busy): (Vec<&Sample>, Vec<&Sample>) =
        profile.samples.iter().partition(|sample| sample.idle);
    let shown = match options.idle {
        Idle::Fold => busy,
        Idle::Show => profile.samples.iter().collect(),
        Idle::Only => idle.clone(),
    };
    let mut entries = merge(&shown);
    entries.sort_by(|a, b| {
        let name = |entry: &Entry<'_>| entry.sample.map(|sample| Arc::clone(&sample.task.comm));
        b.total()
            .cmp(&a.total())
            .then_with(|| name(a).cmp(&name(b)))
    });
    let all: u64 = entries.iter().map(Entry::total).sum();
    for entry in entries.iter().take(options.top) {
        write_entry(profile, entry, all, options, out)?;
    }
    let rest = entries.get(options.top..).unwrap_or_default();
    if !rest.is_empty() {
        let value: u64 = rest.iter().map(Entry::total).sum();
        let (value, share) = (number(value, options), percent(value, all));
        writeln!(
            out,
            "\n{} more stacks: {value}, {share} (-f or -j has all)",
            units::count(rest.len() as u64)
        )?;
    }
    if options.idle == Idle::Fold && !idle.is_empty() {
        write_idle(&idle, options, out)?;
    }
    Ok(())
}

fn merge<'a>(samples: &[&'a Sample]) -> Vec<Entry<'a>> {
    let mut entries: HashMap<Key<'a>, Entry<'a>> = HashMap::new();
    for &sample in samples {
        let task = &sample.task;
        let entry = entries
            .entry((&task.comm, task.tgid, sample.reason, names(sample)))
            .or_default();
        entry.values.resize(sample.values.len(), 0);
        entry
            .values
            .iter_mut()
            .zip(&sample.values)
            .for_each(|(sum, value)| *sum += value);
        entry.count += sample.count;
        entry.tids.insert(task.tid);
        entry.sample.get_or_insert(sample);
    }
    entries.into_values().collect()
}

/// Every name of a sample's stacks in order, parts told apart by empty names.
fn names(sample: &Sample) -> Vec<&str> {
    fn part(frames: &[Frame]) -> impl Iterator<Item = &str> {
        frames.iter().map(|frame| &*frame.name).chain([""])
    }
    let mut names: Vec<&str> = part(&sample.user).chain(part(&sample.kernel)).collect();
    if let Some(waker) = &sample.waker {
        names.push(waker.task.as_ref().map_or("", |task| &*task.comm));
        names.extend(part(&waker.user).chain(part(&waker.kernel)));
    }
    names
}

fn write_entry(
    profile: &Profile,
    entry: &Entry<'_>,
    all: u64,
    options: &ListOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(sample) = entry.sample else {
        return Ok(());
    };
    let task = &sample.task;
    let (bold, plain) = if options.color {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    write!(
        out,
        "\n{bold}{}  {}  {}",
        number(entry.total(), options),
        percent(entry.total(), all),
        terminal(&task.comm)
    )?;
    match entry.tids.len() {
        // One process, threads not told apart.
        1 if task.tid == 0 => write!(out, " (pid {})", task.tgid)?,
        1 if task.tid == task.tgid => write!(out, " (pid {})", task.tgid)?,
        1 => write!(out, " (pid {}, tid {})", task.tgid, task.tid)?,
        n => write!(out, " (pid {}, {n} threads)", task.tgid)?,
    }
    if let Some(reason) = sample.reason {
        write!(out, "  {reason}")?;
    }
    if options.is_time {
        write!(out, "  {} waits", units::count(entry.count))?;
    }
    writeln!(out, "{plain}")?;
    if options.split {
        let parts = profile.values.iter().zip(&entry.values);
        let parts: Vec<String> = parts
            .map(|(kind, value)| format!("{} {}", kind.name, number(*value, options)))
            .collect();
        writeln!(out, "    {}", parts.join(", "))?;
    }
    write_frames(&sample.kernel, out)?;
    if !sample.kernel.is_empty() && !sample.user.is_empty() {
        writeln!(out, "    -")?;
    }
    write_frames(&sample.user, out)?;
    if let Some(waker) = &sample.waker {
        write_waker(waker, out)?;
    }
    Ok(())
}

fn write_frames(frames: &[Frame], out: &mut impl Write) -> io::Result<()> {
    for frame in frames.iter().rev() {
        let inlined = if frame.inlined { " (inlined)" } else { "" };
        writeln!(out, "    {}{inlined}", terminal(&frame.name))?;
    }
    Ok(())
}

fn write_waker(waker: &Waker, out: &mut impl Write) -> io::Result<()> {
    match &waker.task {
        Some(task) => writeln!(
            out,
            "    -- woken by {} (tid {})",
            terminal(&task.comm),
            task.tid
        )?,
        None => writeln!(out, "    -- woken by an interrupt")?,
    }
    write_frames(&waker.kernel, out)?;
    write_frames(&waker.user, out)
}

fn write_idle(idle: &[&Sample], options: &ListOptions, out: &mut impl Write) -> io::Result<()> {
    let threads: HashSet<(u32, u32)> = idle
        .iter()
        .map(|sample| (sample.task.tgid, sample.task.tid))
        .collect();
    let value = number(idle.iter().map(|sample| sample.total()).sum(), options);
    let threads = units::count(threads.len() as u64);
    writeln!(
        out,
        "\n[idle] {value} in {threads} threads with nothing to do (--idle show lists them)"
    )
}

/// A value for people: a time or a count.
fn number(value: u64, options: &ListOptions) -> String {
    if options.is_time {
        units::duration(value)
    } else {
        units::count(value)
    }
}

/// A share with one decimal.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64)
}
