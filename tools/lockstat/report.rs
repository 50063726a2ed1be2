//! What lockstat says, in each format.

use std::io::{self, Write};

use anyhow::{Context, Result};
use profile::folded::{self, FoldedOptions};
use profile::style::Style;
use profile::write::Meta;
use serde_json::Map;
use trace::output::Format;
use trace::stacks::StackTable;

use crate::args::Args;
use crate::harvest::Harvest;
use crate::table::Look;
use crate::waits::{self, DELAY};
use crate::{json, merge, stacks as listing, table};

/// Writes an interval's report to stdout, and the files.
pub(crate) fn report(args: &Args, harvest: &Harvest, stacks: &mut StackTable) -> Result<()> {
    // Files first: whoever reads stdout may have left.
    for file in &args.output {
        file.write(|mut out| write(args, file.format, harvest, stacks, &mut out))?;
        file.say("lockstat", args.common.quiet);
    }
    let mut out = io::stdout().lock();
    write(args, args.format(), harvest, stacks, &mut out).context("write to stdout")
}

fn write(
    args: &Args,
    format: Format,
    harvest: &Harvest,
    stacks: &mut StackTable,
    out: &mut impl Write,
) -> Result<()> {
    match format {
        Format::Human => write_human(args, harvest, stacks, out)?,
        Format::Folded => {
            folded::write(&waits::profile(harvest, stacks), &folded_options(args), out)?;
        }
        Format::Json => {
            let profile = waits::profile(harvest, stacks);
            let extra = Map::from_iter([("locks".into(), json::locks(harvest, stacks))]);
            profile::json::write(&profile, &extra, out)?;
        }
        Format::File(profile::write::Format::Pprof) => {
            let profile = waits::contentions(waits::profile(harvest, stacks));
            profile::write::write(
                &profile,
                profile::write::Format::Pprof,
                &Meta::default(),
                out,
            )?;
        }
        Format::File(format) => {
            let profile = waits::profile(harvest, stacks);
            profile::write::write(&profile, format, &Meta::default(), out)?;
        }
    }
    Ok(out.flush()?)
}

fn folded_options(args: &Args) -> FoldedOptions {
    FoldedOptions {
        delimiter: args.delimited,
        annotate: args.annotate,
        divisor: 1_000,
        value: Some(DELAY),
        ..FoldedOptions::default()
    }
}

fn write_human(
    args: &Args,
    harvest: &Harvest,
    stacks: &mut StackTable,
    out: &mut impl Write,
) -> Result<()> {
    let look = Look {
        top: args.top,
        hist: args.hist,
        style: Style::from(args.common.uses_color()),
    };
    let merged = merge::merge(&harvest.rows);
    table::write(&merged, look, out, |row, out| {
        listing::write(row, args.stacks, stacks, out)
    })?;
    writeln!(out)?;
    Ok(())
}
