//! flame peek.

use anyhow::{Result, bail};
use profile::ask::peek::{peek, write};
use regex_lite::Regex;

use crate::input::One;
use crate::{output, terminal};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    one: One,

    /// Functions, as a regular expression
    #[arg(value_name = "REGEX")]
    pattern: Regex,

    /// Functions to show
    #[arg(short, long, value_name = "ROWS", default_value_t = 10)]
    number: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let recording = args.one.read()?;
    let mut found = peek(&recording, &args.pattern);
    if found.is_empty() {
        bail!("no function matches {}", args.pattern.as_str());
    }
    let more = found.len().saturating_sub(args.number);
    found.truncate(args.number);
    output::write(None, |mut out| {
        write(
            &recording,
            &found,
            (terminal::width(), terminal::style()),
            &mut out,
        )?;
        if more > 0 {
            let more = profile::units::counted(more as u64, "more functions");
            writeln!(out, "… {more} with matching names; -n shows more")?;
        }
        Ok(())
    })
}
