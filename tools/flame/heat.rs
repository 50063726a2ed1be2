//! flame heat.

use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use profile::ask::heat::{Heat, svg, text};
use profile::write::Format;

use crate::output::{self, Target, target};
use crate::{input, terminal};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Text of perf script, - for stdin
    #[arg(value_name = "IN")]
    path: PathBuf,

    /// Draw into this .svg; without: characters on stdout
    #[arg(short, long, value_name = "FILE", value_parser = target)]
    output: Option<Target>,

    /// Title
    #[arg(long, value_name = "TEXT", default_value = "When samples were taken")]
    title: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args
        .output
        .as_ref()
        .is_some_and(|target| target.format != Format::Svg)
    {
        bail!("heat draws .svg only");
    }
    let mut input = BufReader::with_capacity(1 << 20, input::open(&args.path)?);
    let heat = Heat::read(&mut input).with_context(|| input::name(&args.path))?;
    if heat.total == 0 {
        bail!(
            "{}: no events with times; heat reads the text of perf script",
            input::name(&args.path)
        );
    }
    if heat
        .seconds
        .iter()
        .flatten()
        .filter(|count| **count > 0)
        .count()
        == 1
        && heat.total > 100
    {
        bail!(
            "{}: all events have one time: it was added up while tracing",
            input::name(&args.path)
        );
    }
    let path = args.output.as_ref().map(|target| &*target.path);
    output::write(path, |mut out| match path {
        Some(_) => svg(&heat, &args.title, &mut out),
        None => text(&heat, &args.title, terminal::width(), &mut out),
    })?;
    let hint = "open it in a browser; left to right is time";
    if let Some(target) = &args.output {
        output::say_hint(target, hint);
    }
    Ok(())
}
