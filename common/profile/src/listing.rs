//! The heaviest stacks, for people.

use std::collections::HashSet;
use std::io::{self, Write};

use crate::brief::brief;
use crate::escape::terminal;
use crate::folded::Idle;
use crate::frame::Frame;
use crate::heaviest::{Heavy, heaviest, in_view};
use crate::model::{Profile, Sample, Waker};
use crate::reasons::parts;
use crate::style::Style;
use crate::text::{columns, percent, round_percent, sentence, wrap};
use crate::units;

/// How the list looks.
#[derive(Clone, Copy, Debug)]
pub struct ListOptions {
    /// Stacks shown; what is left out is summed up.
    pub top: usize,
    /// Idle waits: folded into one line, shown, or shown alone.
    pub idle: Idle,
    /// Values are ns, whatever their type says; the number of waits is shown.
    pub is_time: bool,
    /// Each value by its name, not their sum alone.
    pub split: bool,
    /// Stacks whole, a function a line; else in few words, in a line.
    pub whole: bool,
    /// Bold headings.
    pub color: bool,
}

/// Writes the heaviest stacks for 80 columns, see [`write_within`].
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, options: &ListOptions, out: &mut impl Write) -> io::Result<()> {
    write_within(profile, options, 80, out)
}

/// Writes the heaviest stacks, heaviest first; whole ones with the leaf at the top as bcc has it.
///
/// Names longer than `width` columns go on in the next line. Shares are of what is in view:
/// without folded idle waits, which have a line of their own.
///
/// # Errors
///
/// Those of `out`.
pub fn write_within(
    profile: &Profile,
    options: &ListOptions,
    width: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let shown = in_view(&profile.samples, options.idle);
    let stacks = heaviest(&shown);
    let idle = match options.idle {
        Idle::Fold => in_view(&profile.samples, Idle::Only),
        Idle::Show | Idle::Only => Vec::new(),
    };
    let idle_parts = [0, 1].map(|at| {
        let of = |one: &&Sample| parts(profile, one.reason, &one.values)[at];
        sum(idle.iter().map(of))
    });
    let all = sum(stacks.iter().map(Heavy::total).chain([idle_parts[1]]));
    let mut list = List {
        profile,
        options,
        width,
        is_empty: stacks.is_empty(),
        unit: if options.is_time {
            "ns"
        } else {
            profile.unit()
        },
        out,
    };
    for stack in stacks.iter().take(options.top) {
        list.stack(stack, all)?;
    }
    let rest = stacks.get(options.top..).unwrap_or_default();
    if !rest.is_empty() {
        list.rest(rest, all)?;
    }
    if !idle.is_empty() {
        list.idle(&idle, idle_parts, all)?;
    }
    Ok(())
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

struct List<'a, W> {
    profile: &'a Profile,
    options: &'a ListOptions,
    width: usize,
    /// No stack is in view.
    is_empty: bool,
    unit: &'static str,
    out: &'a mut W,
}

impl<W: Write> List<'_, W> {
    fn stack(&mut self, stack: &Heavy<'_>, all: u64) -> io::Result<()> {
        let sample = stack.sample;
        if self.options.whole {
            writeln!(self.out)?;
        }
        let style = Style::from(self.options.color);
        for line in self.heading(stack, all).lines() {
            for line in wrap(line, self.width, 4) {
                writeln!(self.out, "{}", style.bold(line))?;
            }
        }
        if self.options.split {
            let parts = self.profile.values.iter().zip(&stack.values);
            let parts: Vec<String> = parts
                .map(|(kind, value)| format!("{} {}", kind.name, units::value(*value, self.unit)))
                .collect();
            writeln!(self.out, "    {}", parts.join(", "))?;
        }
        if sample.kernel.is_empty() && sample.user.is_empty() {
            writeln!(self.out, "    [no stack]")?;
        }
        self.both(&sample.kernel, &sample.user)?;
        match &sample.waker {
            Some(waker) => self.waker(waker),
            None => Ok(()),
        }
    }

    fn heading(&self, stack: &Heavy<'_>, all: u64) -> String {
        let task = &stack.sample.task;
        let total = stack.total();
        let whose = match (stack.tgids.len(), task.tgid) {
            (1, 0) => "pid ?".into(),
            (1, tgid) => format!("pid {tgid}"),
            (n, _) => format!("{n} processes"),
        };
        let is_one_each = stack.tgids.len() > 1 && stack.tids.len() == stack.tgids.len();
        let threads = match (stack.tids.len(), stack.tids.first()) {
            (1, None | Some(0)) => String::new(),
            _ if is_one_each => String::new(),
            (1, Some(tid)) if *tid == task.tgid => String::new(),
            (1, Some(tid)) => format!(", tid {tid}"),
            (n, _) => format!(", {n} threads"),
        };
        let value = self.value(total);
        let share = percent(total, all);
        let comm = terminal(&task.comm);
        let mut heading = format!("{value}  {share}  {comm} ({whose}{threads})");
        if let Some(reason) = waited_for(stack.sample) {
            heading += &format!("  {reason}");
            let [for_it, for_cpu] = parts(self.profile, stack.sample.reason, &stack.values);
            if for_it > 0 && for_cpu > total / 10 {
                let share = round_percent(for_cpu, total);
                heading += &format!(", {share} for a CPU");
            }
        }
        if stack.sample.idle && self.options.idle == Idle::Show {
            heading += "  [idle]";
        }
        if self.options.is_time {
            let plural = if stack.count == 1 { "" } else { "s" };
            let waits = format!("{} wait{plural}", units::count(stack.count));
            let is_wide = columns(&heading) + 2 + columns(&waits) > self.width;
            heading += if is_wide { "\n    " } else { "  " };
            heading += &waits;
        }
        heading
    }

    /// With its unit; how often something was seen is in numbers of that.
    fn value(&self, value: u64) -> String {
        match self.profile.values.first() {
            Some(kind) if self.unit == "count" => units::counted(value, kind.name),
            _ => units::value(value, self.unit),
        }
    }

    fn waker(&mut self, waker: &Waker) -> io::Result<()> {
        let who = match &waker.task {
            Some(task) => format!("{} (tid {})", terminal(&task.comm), task.tid),
            None => "an interrupt".into(),
        };
        if !self.options.whole {
            let words = brief(&waker.kernel, &waker.user);
            return self.path(format!("    woken by {who}: "), &words);
        }
        writeln!(self.out, "    -- woken by {who}")?;
        self.both(&waker.kernel, &waker.user)
    }

    fn wrapped(&mut self, text: &str) -> io::Result<()> {
        for line in wrap(text, self.width, 8) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    /// Functions in a row, and in the next one where they do not fit.
    fn path(&mut self, mut line: String, words: &[String]) -> io::Result<()> {
        for (at, word) in words.iter().enumerate() {
            let arrow = if at == 0 { "" } else { "> " };
            let used = columns(&line) + arrow.len() + columns(word);
            if at > 0 && used > self.width {
                writeln!(self.out, "{}", line.trim_end())?;
                line = " ".repeat(6);
            }
            line += &format!("{arrow}{word} ");
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(());
        }
        self.wrapped(line.trim_end_matches(':'))
    }

    fn both(&mut self, kernel: &[Frame], user: &[Frame]) -> io::Result<()> {
        if !self.options.whole {
            return self.path("    ".into(), &brief(kernel, user));
        }
        self.frames(kernel)?;
        if !kernel.is_empty() && !user.is_empty() {
            writeln!(self.out, "    -")?;
        }
        self.frames(user)
    }

    fn frames(&mut self, frames: &[Frame]) -> io::Result<()> {
        for frame in frames.iter().rev() {
            let inlined = if frame.inlined { " (inlined)" } else { "" };
            self.wrapped(&format!("    {}{inlined}", terminal(&frame.name)))?;
        }
        Ok(())
    }

    /// A remark below the list, if there is one, after an empty line.
    fn note(&mut self, parts: [String; 2]) -> io::Result<()> {
        if !self.is_empty {
            writeln!(self.out)?;
        }
        for line in sentence(&parts, "", self.width) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn rest(&mut self, rest: &[Heavy<'_>], all: u64) -> io::Result<()> {
        let weight = sum(rest.iter().map(Heavy::total));
        let (value, share) = (self.value(weight), percent(weight, all));
        let n = units::count(rest.len() as u64);
        let plural = if rest.len() == 1 { "" } else { "s" };
        let how = match self.options.whole {
            true => "-f or -j",
            false => "-v shows stacks whole; -f or -j",
        };
        let rest = format!("… {n} more stack{plural}: {value}, {share}");
        self.note([rest, format!("({how} has all)")])
    }

    fn idle(&mut self, idle: &[&Sample], [ns, cpu_ns]: [u64; 2], all: u64) -> io::Result<()> {
        let threads: HashSet<(u32, u32)> = idle
            .iter()
            .map(|sample| (sample.task.tgid, sample.task.tid))
            .collect();
        let value = units::value(ns, self.unit);
        let n = units::count(threads.len() as u64);
        let plural = if threads.len() == 1 { "" } else { "s" };
        let mut idle = format!("[idle] {value} in {n} thread{plural} with nothing to do");
        if cpu_ns > all / 100 {
            let value = units::value(cpu_ns, self.unit);
            idle += &format!(", then {value}, {}, for a CPU", round_percent(cpu_ns, all));
        }
        self.note([idle, "(--idle show lists them)".into()])
    }
}

/// The reason of a wait. A thread that is where all begin was not preempted: it has not run yet.
fn waited_for(sample: &Sample) -> Option<&'static str> {
    let is_new = match &sample.kernel[..] {
        [only] => only.name.starts_with("ret_from_fork") && sample.user.is_empty(),
        _ => false,
    };
    match sample.reason {
        Some("preempted") if is_new => Some("first wait for a CPU"),
        reason => reason,
    }
}

#[cfg(test)]
mod tests;
