//! Files that are read, and what the formats do not say about them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use profile::ask::top::knows_label;
use profile::escape::terminal;
use profile::read::{ReadOptions, read};
use profile::recording::{Header, Recording, Value};
use profile::units::counted;
use profile::write::Format;

/// About what is read.
#[derive(Args, Clone, Debug)]
pub(crate) struct Input {
    /// Unit of folded values: count, ns, us, ms, s or bytes
    #[arg(long, help_heading = "Input", value_parser = ["count", "ns", "us", "ms", "s", "bytes"], hide_possible_values = true)]
    unit: Option<String>,

    /// Which value to use, where there are several
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    value: Option<String>,

    /// Event to use, where there are several (perf script text)
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    event: Option<String>,

    /// From this second on (perf script text)
    #[arg(long, value_name = "SECONDS", help_heading = "Input")]
    from: Option<f64>,

    /// Up to this second (perf script text)
    #[arg(long, value_name = "SECONDS", help_heading = "Input")]
    to: Option<f64>,
}

impl Input {
    /// Reads a file.
    pub(crate) fn read(&self, path: &Path) -> Result<Recording> {
        self.read_for(path, None)
    }

    /// Reads as much of a file as is needed to write this format; `None`: all of it.
    pub(crate) fn read_for(&self, path: &Path, format: Option<Format>) -> Result<Recording> {
        let options = ReadOptions {
            unit: self.unit.clone(),
            event: self.event.clone(),
            from: self.from,
            to: self.to,
            names_only: format == Some(Format::Folded),
        };
        let found = read(open(path)?, &options);
        let mut recording = found.with_context(|| name(path))?;
        if let Some(value) = &self.value
            && !recording.keep_value(value)
        {
            let values = recording
                .header
                .values
                .iter()
                .map(|value| value.name.clone());
            let values: Vec<String> = values.collect();
            bail!(
                "{}: has no value {value}; it has {}",
                name(path),
                values.join(", ")
            );
        }
        if self.value.is_none() && format != Some(Format::Pprof) {
            say_others(path, &recording.header);
            if recording.header.are_apart {
                recording.keep_first_value();
            }
        }
        say_left_out(path, &recording.header, self.event.is_some());
        // No failure: nothing may have happened while it was recorded.
        if recording.rows().len() == 0 {
            profile::say!("flame: {}: {}", name(path), self.none_found());
        }
        Ok(recording)
    }

    /// Its options, as they were given.
    pub(crate) fn words(&self) -> Vec<String> {
        let texts = [
            ("--unit", self.unit.clone()),
            ("--value", self.value.clone()),
            ("--event", self.event.clone()),
            ("--from", self.from.map(|from| from.to_string())),
            ("--to", self.to.map(|to| to.to_string())),
        ];
        let given = texts
            .into_iter()
            .filter_map(|(option, text)| Some((option, text?)));
        given
            .flat_map(|(option, text)| [option.to_owned(), text])
            .collect()
    }

    fn none_found(&self) -> &'static str {
        if self.from.is_some() || self.to.is_some() {
            "there are no stacks in it between --from and --to"
        } else {
            "there are no stacks in it"
        }
    }
}

/// Says which value is drawn, and which are not.
fn say_others(path: &Path, header: &Header) {
    let Some((drawn, others)) = header.values.split_first() else {
        return;
    };
    let is_left_out = |value: &&Value| header.are_apart || value.unit != drawn.unit;
    let others = others.iter().filter(is_left_out);
    let others: Vec<&str> = others.map(|value| value.name.as_str()).collect();
    if !others.is_empty() {
        let (drawn, others) = (terminal(&drawn.name), others.join(", "));
        profile::say!(
            "flame: {}: shows {drawn}; --value NAME shows another: {}",
            name(path),
            terminal(&others)
        );
    }
}

/// Says what of the file does not count.
fn say_left_out(path: &Path, header: &Header, is_chosen: bool) {
    let left_out = &header.left_out;
    let events = left_out.most().into_iter();
    let mut events: Vec<String> = events
        .map(|(event, count)| format!("{event} ({count})"))
        .collect();
    match left_out.events.len() - events.len() {
        0 => {}
        n => events.push(format!("{n} more")),
    }
    if !events.is_empty() && !is_chosen {
        let shown = header.tool.trim_start_matches("perf ");
        profile::say!(
            "flame: {}: shows {}; --event NAME shows another: {}",
            name(path),
            terminal(shown),
            terminal(&events.join(", "))
        );
    }
    if left_out.rounded > 0 {
        let values = counted(left_out.rounded, "values with a fraction");
        profile::say!(
            "flame: {}: {values} rounded to whole ones, whose sum is right",
            name(path)
        );
    }
    if left_out.malformed > 0 {
        let lines = counted(left_out.malformed, "malformed lines");
        let with = match left_out.with_events {
            true => ", each with its event",
            false => "",
        };
        profile::say!(
            "flame: {}: {lines} left out{with}; {}",
            name(path),
            left_out.first
        );
    }
}

/// Opens a file, or stdin for `-`.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| name(path))?;
    if file.metadata().is_ok_and(|data| data.is_dir()) {
        bail!("{}: is a directory", name(path));
    }
    Ok(Box::new(file))
}

/// What a file is called in messages.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") {
        return "stdin".into();
    }
    terminal(&path.to_string_lossy()).into_owned()
}

/// A profile to read, the only one.
#[derive(Args, Clone, Debug)]
pub(crate) struct One {
    /// Profile, - for stdin
    #[arg(value_name = "IN")]
    pub(crate) path: PathBuf,

    #[command(flatten)]
    pub(crate) input: Input,
}

impl One {
    pub(crate) fn read(&self) -> Result<Recording> {
        self.input.read(&self.path)
    }

    /// Complains of a label that nothing in the profile has.
    pub(crate) fn ensure_label(&self, recording: &Recording, label: &str) -> Result<()> {
        ensure!(
            recording.total() == 0 || knows_label(recording, label),
            "{}: no sample has a label {}; all may have comm, pid, tid, reason, idle, waker",
            name(&self.path),
            profile::escape::terminal(label)
        );
        Ok(())
    }

    /// As much as this format needs.
    pub(crate) fn read_for(&self, format: Format) -> Result<Recording> {
        self.input.read_for(&self.path, Some(format))
    }
}
