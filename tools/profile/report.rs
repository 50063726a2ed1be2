//! What profile says: a profile out of plain rows, in each format.

use std::io::{self, Write};

use anyhow::Result;
use budget::cost::Cost;
use host::clock::Edges;
use host::task::comm_of;
use profile::folded::{self, FoldedOptions, Idle};
use profile::functions::{self, Words};
use profile::listing::{self, ListOptions};
use profile::model::{Profile, Sample, ValueType};
use profile::text::{WIDTH, sentence, write_lines};
use profile::write::{Format as FileFormat, Meta, write_moments};
use profile::{ends, json, nameless, units};
use serde_json::{Map, Value, json};
use session::closing::{self, Closing};
use session::options::terminal_width;
use session::output::{Format, write_all};
use session::quotas::UsedUp;
use stacks::StackTable;

use crate::profile::answer;
use crate::profile::args::{Args, Rate};
use crate::profile::harvest::{Harvest, Row, Totals};
use crate::profile::moments::Moments;
use crate::profile::quota;

/// Functions and stacks that people are shown.
const TOP_FUNCTIONS: usize = 20;
const TOP_STACKS: usize = 5;

/// Writes everything that was asked for; returns what is to be said at the end.
pub(crate) fn report(
    args: &Args,
    harvest: &Harvest,
    moments: &Moments,
    stacks: &mut StackTable,
    cost: &Cost,
) -> Result<Closing> {
    let report = Report {
        args,
        harvest,
        profile: &profile_of(args, &harvest.rows, harvest.window, stacks),
        cost,
    };
    let timed = profile_of(args, &moments.rows, harvest.window, stacks);
    let meta = report.meta(stacks);
    let format = args.stacks.format(&args.common);
    write_all(&args.stacks.output, format, |format, mut out| {
        match format {
            Format::File(FileFormat::Perf) => {
                write_moments(&timed, &moments.all, &meta, &mut out)?;
            }
            format => report.write(format, &meta, &mut out)?,
        }
        Ok(())
    })?;
    Ok(report.closing(stacks))
}

pub(crate) fn profile_of(
    args: &Args,
    rows: &[Row],
    window: Edges,
    stacks: &mut StackTable,
) -> Profile {
    let samples = rows.iter().map(|row| Sample {
        task: row.task.clone(),
        reason: None,
        user: stacks.user_names(row.user),
        user_end: stacks.user_end(row.user),
        kernel: stacks.kernel_names(row.kernel),
        waker: None,
        idle: false,
        count: row.samples,
        values: vec![row.weight],
    });
    Profile {
        tool: "profile",
        values: vec![ValueType::new(
            args.event.value_name(args.weight.as_deref()),
            unit(args),
        )],
        samples: samples.collect(),
        duration_ns: window.ns(),
    }
}

/// Of the values: only whoever chose a weight knows what it measures, so it is named.
fn unit(args: &Args) -> &'static str {
    match &args.weight {
        // One string, needed to the end of the program.
        Some(weight) => format!("{weight} of {}", args.event.short_name()).leak(),
        None => "count",
    }
}

fn folded_options(args: &Args) -> FoldedOptions {
    FoldedOptions {
        delimiter: args.stacks.delimited,
        annotate: args.stacks.annotate,
        threads: args.threads,
        ..FoldedOptions::default()
    }
}

/// A run that is to be told of.
struct Report<'a> {
    args: &'a Args,
    harvest: &'a Harvest,
    profile: &'a Profile,
    cost: &'a Cost,
}

impl Report<'_> {
    /// Facts of the run for other programs.
    fn meta(&self, stacks: &StackTable) -> Meta {
        let Harvest { losses, window, .. } = self.harvest;
        let mut meta = closing::meta(losses, 0, self.cost, window.duration());
        meta.comments
            .extend(ends::describe(self.profile).map(|ends| ends.to_string()));
        meta.event = self.args.event.short_name();
        meta.build_ids = stacks.build_ids();
        meta.period_ns = answer::period_ns(self.args).unwrap_or(0);
        meta
    }

    fn write(&self, format: Format, meta: &Meta, out: &mut impl Write) -> Result<()> {
        let profile = self.profile;
        match format {
            Format::Human => self.write_human(out)?,
            Format::Folded => drop(folded::write(profile, &folded_options(self.args), out)?),
            Format::Json => {
                let mut extra = self.extra();
                extra.extend(meta.to_json());
                json::write(profile, &extra, out)?;
            }
            Format::File(format) => profile::write::write(profile, format, meta, out)?,
        }
        Ok(())
    }

    fn write_human(&self, out: &mut impl Write) -> io::Result<()> {
        let (args, harvest, profile) = (self.args, self.harvest, self.profile);
        let all: u64 = profile.samples.iter().map(Sample::total).sum();
        let what = answer::values(args, profile);
        if all == 0 {
            self.write_nothing(&what, out)?;
            writeln!(out, "\n{}", answer::next(args, profile))?;
            return self.write_sureness(&what, out);
        }
        let before = answer::busy(args, harvest, profile, comm_of);
        let words = Words {
            what: &what,
            before: before.as_deref(),
            below: &quota::describe(harvest),
        };
        // A weight is a sum of what the program chose, and an estimate counts samples several times: those are not independent.
        let sampled = args.weight.is_none() && harvest.estimates.is_none();
        functions::write(
            profile,
            TOP_FUNCTIONS,
            terminal_width(),
            sampled,
            words,
            out,
        )?;
        let order = if args.common.verbose {
            ", leaf first"
        } else {
            ""
        };
        let heading = match args.weight {
            Some(_) => vec![
                format!("Heaviest stacks by {what},"),
                format!("{} in all{order}:", units::count(all)),
            ],
            None => vec![format!(
                "Heaviest stacks of {}{order}:",
                units::counted(all, &what)
            )],
        };
        writeln!(out)?;
        write_lines(sentence(&heading, "", WIDTH), out)?;
        let options = ListOptions {
            top: TOP_STACKS,
            idle: Idle::Show,
            is_time: false,
            split: false,
            whole: args.common.verbose,
            color: args.common.uses_color(),
        };
        listing::write(profile, &options, out)?;
        writeln!(out, "\n{}", answer::next(args, profile))?;
        self.write_sureness(&what, out)
    }

    fn write_nothing(&self, what: &str, out: &mut impl Write) -> io::Result<()> {
        match self.args.weight {
            Some(_) => writeln!(out, "Nothing: {what} is 0.")?,
            None => writeln!(out, "No {what}.")?,
        }
        write_lines(quota::describe(self.harvest), out)
    }

    fn write_sureness(&self, what: &str, out: &mut impl Write) -> io::Result<()> {
        match &self.harvest.estimates {
            Some(estimates) => {
                let line = estimates.describe(what, self.args.weight.is_some());
                writeln!(out, "\n{line}")
            }
            None => Ok(()),
        }
    }

    fn extra(&self) -> Map<String, Value> {
        let (harvest, totals) = (self.harvest, &self.harvest.totals);
        let mut extra = Map::new();
        harvest.window.add_to(&mut extra);
        extra.insert("user_ends".into(), ends::to_json(self.profile));
        let (key, rate) = match self.args.rate() {
            Rate::Hertz(hertz) => ("frequency_hz", hertz),
            Rate::Every(period) => ("period", period),
        };
        extra.insert(key.into(), rate.into());
        extra.insert(
            "events".into(),
            json!({
                "seen": totals.events,
                "expected": harvest.expected,
                "idle": totals.idle,
                "other_tasks": totals.others,
                "samples": totals.samples,
            }),
        );
        if let Some(estimates) = &harvest.estimates {
            let estimates = json!({
                "samples": estimates.samples.to_json(),
                "weight": estimates.weight.to_json(),
                "looked": estimates.looked,
            });
            extra.insert("estimates".into(), estimates);
        }
        let quotas = harvest.quotas.iter().map(UsedUp::to_json);
        extra.insert("quotas".into(), quotas.collect());
        extra.insert("losses".into(), harvest.losses.to_json());
        extra.insert("cost".into(), self.cost.to_json());
        extra
    }

    fn closing(&self, stacks: &StackTable) -> Closing {
        let harvest = self.harvest;
        let totals = &harvest.totals;
        let expected = harvest.expected.filter(|expected| *expected >= FEW_TICKS);
        let due = expected.map(|expected| ticks_due(totals, expected));
        let (enough, short): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, enough)| *enough);
        let texts = |dues: Vec<(String, bool)>| dues.into_iter().map(|(text, _)| text);
        Closing {
            check: None,
            events: (totals.samples, "samples"),
            of_targets: None,
            stacks: Some(stacks.len()),
            ends: ends::describe(self.profile),
            losses: harvest.losses.clone(),
            losses_of_ns: 0,
            cost: *self.cost,
            notes: texts(short)
                .chain(nameless::describe(self.profile))
                .collect(),
            details: std::iter::once(stacks.describe_unnamed())
                .chain(texts(enough))
                .collect(),
        }
    }
}

/// Of fewer that were due, one that fell just beside the window is a large part.
const FEW_TICKS: u64 = 20;

/// Share of the ticks due, from which on nothing is missing that a reader should know of.
const ENOUGH_TICKS: f64 = 0.95;

/// The samples of busy CPUs against those that were due there, and whether there were enough.
fn ticks_due(totals: &Totals, expected: u64) -> (String, bool) {
    let share = totals.busy() as f64 / expected as f64;
    let text = format!(
        "busy CPUs were sampled {} of {} times ({:.1}%), {} of these in other tasks; idle CPUs {}",
        units::count(totals.busy()),
        units::count(expected),
        100.0 * share,
        units::count(totals.others),
        units::counted(totals.idle, "times"),
    );
    (text, share >= ENOUGH_TICKS)
}

#[cfg(test)]
#[path = "one_window_tests.rs"]
mod one_window_tests;

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;
    use profile::frame::Frame;
    use profile::losses::Losses;

    use super::*;
    use crate::made_up::{frame, task};
    use crate::narrow::{COMMS, LONG_NS, MANY, PATHS, assert_narrow};

    /// A harvest without rows of a window of that length.
    pub(crate) fn harvest_of(window_ns: u64) -> Harvest {
        Harvest {
            rows: Vec::new(),
            totals: Totals::default(),
            losses: Losses::default(),
            window: Edges {
                start_ns: 0,
                end_ns: window_ns,
            },
            expected: None,
            estimates: None,
            quotas: Vec::new(),
        }
    }

    #[test]
    fn no_line_is_too_long_whatever_the_names_are() {
        let harvest = harvest_of(LONG_NS);
        let frame = |name: &str, module: &str| Frame {
            module: Some(module.into()),
            ..frame(name)
        };
        let samples = COMMS.iter().flat_map(|comm| {
            PATHS.map(|path| Sample {
                task: task(comm, 4_194_304, 4_194_303),
                user: [frame(path, path), frame(comm, comm)].into(),
                count: MANY,
                values: vec![MANY],
                ..Sample::default()
            })
        });
        let samples: Vec<Sample> = samples.collect();
        let options = [
            "profile",
            "profile -e page-faults",
            "profile -e uprobe:libc:malloc --weight arg1",
        ];
        for options in options {
            let args = Args::parse_from(options.split_whitespace());
            let profile = Profile {
                tool: "profile",
                values: vec![ValueType::new(
                    args.event.value_name(args.weight.as_deref()),
                    unit(&args),
                )],
                samples: samples.clone(),
                duration_ns: LONG_NS,
            };
            let mut out = Vec::new();
            let report = Report {
                args: &args,
                harvest: &harvest,
                profile: &profile,
                cost: &Cost::default(),
            };
            report.write_human(&mut out).expect("a vector");
            assert_narrow(&String::from_utf8(out).expect("text"));
        }
    }
}
