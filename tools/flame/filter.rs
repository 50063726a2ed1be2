//! flame filter.

use anyhow::Result;
use profile::ask::filter::Filter;
use profile::write::{Format, write_recording};
use regex_lite::Regex;

use crate::input::One;
use crate::output::{self, Target, target};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    one: One,

    /// Only stacks with a function that matches (repeatable: all must)
    #[arg(long, value_name = "REGEX")]
    focus: Vec<Regex>,

    /// No stacks with a function that matches (repeatable)
    #[arg(long, value_name = "REGEX")]
    ignore: Vec<Regex>,

    /// Only samples whose label (comm, pid, tid, reason, idle, …) matches
    #[arg(long, value_name = "LABEL=REGEX", value_parser = tag)]
    tag: Vec<(String, Regex)>,

    /// File to write; without: folded on stdout
    #[arg(short, long, value_name = "FILE", value_parser = target)]
    output: Option<Target>,
}

/// The whole value must match: pid=12 is not 123.
fn tag(text: &str) -> Result<(String, Regex), String> {
    let (label, pattern) = text
        .split_once('=')
        .ok_or("give LABEL=REGEX, such as reason=futex")?;
    let pattern = Regex::new(&format!("^(?:{pattern})$")).map_err(|err| err.to_string())?;
    Ok((label.to_owned(), pattern))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let format = output::format(args.output.as_ref());
    // Labels are needed, whatever is written.
    let recording = match format {
        Format::Pprof => args.one.read_for(format)?,
        _ => args.one.read()?,
    };
    for (label, _) in &args.tag {
        args.one.ensure_label(&recording, label)?;
    }
    let filter = Filter {
        focus: args.focus.clone(),
        ignore: args.ignore.clone(),
        tags: args.tag.clone(),
    };
    let kept = filter.apply(&recording);
    let path = args.output.as_ref().map(|target| &*target.path);
    output::write(path, |mut out| write_recording(&kept, format, "", &mut out))?;
    let (kept, all) = (kept.total(), recording.total());
    profile::say!(
        "flame filter: kept {} of {}, {:.1} %",
        profile::units::value(kept, recording.unit()),
        profile::units::value(all, recording.unit()),
        100.0 * kept as f64 / all.max(1) as f64
    );
    Ok(())
}
