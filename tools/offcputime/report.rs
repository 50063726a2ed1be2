//! What offcputime says: a profile out of plain rows, in each format.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use budget::Estimate;
use budget::cost::Cost;
use host::procs;
use host::waits::Reason;
use profile::folded::{self, FoldedOptions, Idle, Written};
use profile::frame::Frame;
use profile::listing::{self, ListOptions};
use profile::model::{Profile, Sample, ValueType};
use profile::text::{WIDTH, sentence, write_lines};
use profile::write::Meta;
use profile::{ends, json, nameless, reasons, units};
use serde_json::{Map, Value, json};
use session::closing::{self, Closing};
use session::output::{Format, write_all};
use session::quotas::UsedUp;
use stacks::StackTable;

use crate::offcputime::answer::answer;
use crate::offcputime::args::Args;
use crate::offcputime::gil::{self, GIL};
use crate::offcputime::harvest::{Accounting, Estimates, Harvest};
use crate::offcputime::idle::Traced;
use crate::offcputime::row::Row;
use crate::offcputime::{idle, java, next, quota, sqlite};

/// Stacks that people are shown.
const TOP: usize = 10;

pub(crate) const VALUES: [ValueType; 2] = [
    ValueType::new("blocked", "ns"),
    ValueType::new("runqueue", "ns"),
];

/// Writes everything that was asked for; returns what is to be said at the end.
pub(crate) fn report(
    args: &Args,
    harvest: &Harvest,
    stacks: &mut StackTable,
    cost: &Cost,
) -> Result<Closing> {
    let is_choice = !args.targets.are_all();
    let report = Report {
        args,
        harvest,
        profile: &profile_of(args, is_choice, harvest, stacks),
        cost,
    };
    let meta = report.meta(stacks);
    let mut dropped_ns = 0;
    let format = args.stacks.format(&args.common);
    write_all(&args.stacks.output, format, |format, mut out| {
        dropped_ns = dropped_ns.max(report.write(format, &meta, &mut out)?);
        Ok(())
    })?;
    let mut closing = report.closing(stacks, dropped_ns);
    closing.notes.extend(nameless::describe(report.profile));
    Ok(closing)
}

/// Parts of the names of functions that wait for a condition variable.
const CONDITIONS: [&str; 3] = ["cond_", "condvar", "condition"];

/// Says that a thread has ended after a wait for no condition variable, and its program goes on.
fn has_left(row: &Row, stacks: &mut StackTable) -> bool {
    let program = Path::new("/proc").join(row.task.tgid.to_string());
    let thread = program.join("task").join(row.task.tid.to_string());
    let has_left = row.task.tid != 0 && program.exists() && !thread.exists();
    let is_condition = |frame: &Frame| {
        let name = frame.name.to_ascii_lowercase();
        CONDITIONS.iter().any(|part| name.contains(part))
    };
    has_left && !stacks.user_names(row.user).iter().any(is_condition)
}

/// `is_choice`: threads were asked for, or chosen.
pub(crate) fn profile_of(
    args: &Args,
    is_choice: bool,
    harvest: &Harvest,
    stacks: &mut StackTable,
) -> Profile {
    let depths: Vec<Option<usize>> = harvest.rows.iter().map(|row| depth(row, stacks)).collect();
    let gils: Vec<bool> = harvest.rows.iter().map(|row| is_gil(row, stacks)).collect();
    let lacking = quota::lacking(&harvest.rows);
    let mut servers = HashMap::new();
    let idle = idle::mark(
        &harvest.rows,
        &depths,
        Traced::of(&args.targets, is_choice),
        |row| has_left(row, stacks),
        |tgid| {
            // One that has ended cannot be asked, and nearly all epolls do.
            let has_ended = || procs::stack_start(tgid).is_none();
            let is_server = || has_ended() || procs::watches_sockets(tgid);
            *servers.entry(tgid).or_insert_with(is_server)
        },
    );
    let rows = harvest.rows.iter().zip(gils);
    let samples = rows.zip(idle).map(|((row, is_gil), idle)| {
        let user = stacks.user_names(row.user);
        let kernel = stacks.kernel_names(row.kernel);
        let function = kernel.last().map_or("", |leaf| &leaf.name);
        let lacks = lacking.contains(&row.task.tgid);
        let sleeps = java::sleeps(row.wait, &user);
        Sample {
            task: row.task.clone(),
            reason: Some(match quota::reason(row.wait, function, lacks) {
                _ if is_gil => GIL,
                Reason::Futex if sleeps => Reason::Sleep.name(),
                Reason::Sleep if sqlite::is_busy(&user) => Reason::FileLock.name(),
                reason => reason.name(),
            }),
            idle: !is_gil && !sleeps && (idle || idle::rests_in_go(row.wait, &user)),
            user,
            user_end: stacks.user_end(row.user),
            kernel,
            waker: args.waker.then(|| stacks.waker(row.waker)).flatten(),
            count: row.count,
            values: vec![row.blocked_ns, row.runqueue_ns],
        }
    });
    Profile {
        tool: "offcputime",
        values: VALUES.to_vec(),
        samples: samples.collect(),
        duration_ns: harvest.window.ns(),
    }
}

fn is_gil(row: &Row, stacks: &mut StackTable) -> bool {
    gil::is_for_interpreter(row.wait, &stacks.user_names(row.user))
}

/// Frames of a complete stack up to the program's last function, or of a kernel thread's stack. A wait for the interpreter of Python has
/// no depth, nor has a sleep: a thread is at home elsewhere.
pub(crate) fn depth(row: &Row, stacks: &mut StackTable) -> Option<usize> {
    if row.wait.is_of_kernel_thread() {
        return Some(stacks.kernel_names(row.kernel).len()).filter(|frames| *frames > 0);
    }
    let depth = stacks.own_depth(row.user);
    depth.filter(|_| !is_gil(row, stacks) && !java::sleeps(row.wait, &stacks.user_names(row.user)))
}

fn folded_options(args: &Args) -> FoldedOptions {
    FoldedOptions {
        delimiter: args.stacks.delimited,
        annotate: args.stacks.annotate,
        reason: args.reason,
        split: args.split,
        idle: args.idle.map_or(Idle::Show, Idle::from),
        divisor: 1_000,
        ..FoldedOptions::default()
    }
}

/// A run that is to be told of.
pub(crate) struct Report<'a> {
    pub(crate) args: &'a Args,
    pub(crate) harvest: &'a Harvest,
    pub(crate) profile: &'a Profile,
    pub(crate) cost: &'a Cost,
}

impl Report<'_> {
    /// Facts of the run for other programs.
    fn meta(&self, stacks: &StackTable) -> Meta {
        let (harvest, of_ns) = (self.harvest, self.harvest.accounting.lifetime_ns);
        let window = harvest.window.duration();
        let mut meta = closing::meta(&harvest.losses, of_ns, self.cost, window);
        meta.comments
            .extend(ends::describe(self.profile).map(|ends| ends.to_string()));
        meta.build_ids = stacks.build_ids();
        meta
    }

    /// Returns the time, ns, that has no line because it rounds to 0 us.
    fn write(&self, format: Format, meta: &Meta, out: &mut impl Write) -> Result<u64> {
        let profile = self.profile;
        let mut written = Written::default();
        match format {
            Format::Human => self.write_human(out)?,
            Format::Folded => written = folded::write(profile, &folded_options(self.args), out)?,
            Format::Json => {
                let mut extra = self.extra();
                extra.extend(meta.to_json());
                json::write(profile, &extra, out)?;
            }
            Format::File(format) => profile::write::write(profile, format, meta, out)?,
        }
        Ok(written.dropped)
    }

    fn write_human(&self, out: &mut impl Write) -> io::Result<()> {
        let (args, harvest, profile) = (self.args, self.harvest, self.profile);
        let accounting = &harvest.accounting;
        let mut lines = answer(args, profile, accounting);
        let idle_ns = idle_ns(profile);
        lines.extend(phases(accounting, idle_ns, harvest.estimates.as_ref()));
        lines.extend(quota::describe(profile, &harvest.quotas));
        write_lines(lines, out)?;
        writeln!(out)?;
        match (profile.samples.is_empty(), accounting.filtered) {
            (false, _) => self.write_waits(out)?,
            (true, 0) => writeln!(out, "No thread waited.")?,
            (true, n) => {
                let waits = units::counted(n, "waits");
                let what = match args.leaving_out() {
                    None => "all were below 1 us (-m 0 shows them)".to_owned(),
                    Some(options) => format!("{options} left out all"),
                };
                writeln!(out, "No wait is left of {waits}: {what}.")?;
            }
        }
        let known = (accounting, &harvest.quotas[..]);
        let next = next::next(args, profile, known, session::next::is_there);
        writeln!(out, "\n{next}")
    }

    /// Waits by reason, then by stack.
    fn write_waits(&self, out: &mut impl Write) -> io::Result<()> {
        let (args, profile) = (self.args, self.profile);
        reasons::write(profile, out)?;
        writeln!(out)?;
        let options = ListOptions {
            top: TOP,
            idle: args.idle.map_or(Idle::Fold, Idle::from),
            is_time: true,
            split: args.split,
            whole: args.common.verbose,
            color: args.common.uses_color(),
        };
        if options.idle == Idle::Only && !profile.samples.iter().any(|sample| sample.idle) {
            return writeln!(out, "No thread waited with nothing to do.");
        }
        listing::write(profile, &options, out)
    }

    fn extra(&self) -> Map<String, Value> {
        let harvest = self.harvest;
        let mut extra = Map::new();
        harvest.window.add_to(&mut extra);
        extra.insert("user_ends".into(), ends::to_json(self.profile));
        extra.insert(
            "accounting".into(),
            accounting_json(&harvest.accounting, harvest.open),
        );
        if let Some(errors) = &harvest.estimates {
            extra.insert(
            "estimates".into(),
            json!({"unit": "ns", "oncpu": errors.oncpu.to_json(), "runqueue": errors.runqueue.to_json(), "blocked": errors.blocked.to_json()}),
        );
        }
        let quotas = harvest.quotas.iter().map(UsedUp::to_json);
        extra.insert("quotas".into(), quotas.collect());
        extra.insert("losses".into(), harvest.losses.to_json());
        extra.insert("cost".into(), self.cost.to_json());
        extra
    }

    /// `dropped_ns`: time that has no line because it rounds to 0 us.
    pub(crate) fn closing(&self, stacks: &StackTable, dropped_ns: u64) -> Closing {
        let (args, harvest, profile) = (self.args, self.harvest, self.profile);
        let accounting = &harvest.accounting;
        let mut notes = Vec::new();
        if accounting.filtered > 0 {
            let waits = units::counted(accounting.filtered, "waits");
            let time = units::duration(accounting.filtered_ns);
            notes.push(match args.leaving_out() {
                None => format!("left out below 1 us: {waits}, {time} (-m 0 shows them)"),
                Some(options) => format!("left out by {options}: {waits}, {time}"),
            });
        }
        if dropped_ns > 0 {
            let time = units::duration(dropped_ns);
            notes.push(format!("stacks below half a microsecond: {time}"));
        }
        // Somebody on a whole machine runs Go.
        let is_choice = !args.targets.are_all();
        if is_choice && profile.samples.iter().any(|one| idle::is_in_go(&one.user)) {
            let goroutines =
                "Go: waits of goroutines (channels, sync.Mutex, network) are not shown";
            notes.push(goroutines.to_owned());
        }
        Closing {
            events: (accounting.events, "switches and wakeups"),
            of_targets: None,
            stacks: Some(stacks.len()),
            ends: ends::describe(profile),
            losses: harvest.losses.clone(),
            losses_of_ns: accounting.lifetime_ns,
            check: Some(share_explained(accounting)),
            cost: *self.cost,
            notes,
            details: vec![sum(accounting, harvest.open), stacks.describe_unnamed()],
        }
    }
}

/// Time blocked of threads with nothing to do.
fn idle_ns(profile: &Profile) -> u64 {
    let idle = profile.samples.iter().filter(|sample| sample.idle);
    idle.fold(0, |sum: u64, sample| sum.saturating_add(sample.values[0]))
}

/// Threads' time by what they did, and how sure that is, in lines.
fn phases(accounting: &Accounting, idle_ns: u64, errors: Option<&Estimates>) -> Vec<String> {
    let margin = |of: fn(&Estimates) -> Estimate| {
        errors.map_or(String::new(), |errors| {
            format!(" {}", of(errors).describe())
        })
    };
    let lifetime = units::thread_time(accounting.lifetime_ns);
    let threads = units::counted(accounting.threads, "threads");
    let mut parts = vec![
        format!(
            "{threads}, {lifetime}: on CPU {}{}",
            units::duration(accounting.oncpu_ns),
            margin(|errors| errors.oncpu)
        ),
        format!(
            "waiting for a CPU {}{}",
            units::duration(accounting.runqueue_ns),
            margin(|errors| errors.runqueue)
        ),
        format!(
            "blocked {}{}",
            units::duration(accounting.blocked_ns),
            margin(|errors| errors.blocked)
        ),
    ];
    if idle_ns > 0 {
        parts.push(format!("{} of it idle", units::duration(idle_ns)));
    }
    sentence(&parts, ",", WIDTH)
}

fn accounting_json(accounting: &Accounting, open: u64) -> Value {
    json!({
        "threads": accounting.threads,
        "lifetime_ns": accounting.lifetime_ns,
        "oncpu_ns": accounting.oncpu_ns,
        "runqueue_ns": accounting.runqueue_ns,
        "blocked_ns": accounting.blocked_ns,
        "residual_ns": accounting.residual_ns(),
        "filtered": accounting.filtered,
        "filtered_ns": accounting.filtered_ns,
        "open_at_end": open,
    })
}

/// The check: what threads did has to add up to how long they lived.
fn share_explained(accounting: &Accounting) -> String {
    let explained = accounting.oncpu_ns + accounting.runqueue_ns + accounting.blocked_ns;
    let genitive = if accounting.threads == 1 { "'s" } else { "'" };
    format!(
        "{:.2}% of {}{genitive} {} accounted for",
        100.0 * explained as f64 / accounting.lifetime_ns.max(1) as f64,
        units::counted(accounting.threads, "threads"),
        units::duration(accounting.lifetime_ns),
    )
}

/// The check's parts.
fn sum(accounting: &Accounting, open: u64) -> String {
    format!(
        "on CPU {} + run queue {} + blocked {}; {}",
        units::duration(accounting.oncpu_ns),
        units::duration(accounting.runqueue_ns),
        units::duration(accounting.blocked_ns),
        units::counted(open, "waits still open"),
    )
}

#[cfg(test)]
#[path = "one_window_tests.rs"]
mod one_window_tests;

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
