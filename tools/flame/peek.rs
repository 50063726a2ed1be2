//! flame peek.

use anyhow::{Result, bail};
use profile::ask::peek::{PeekOptions, peek, write};
use regex_lite::Regex;

use crate::input::One;
use crate::{next, output, terminal};

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
    let found = peek(&recording, &args.pattern);
    if found.is_empty() {
        bail!("no function matches {}", args.pattern.as_str());
    }
    let options = PeekOptions {
        rows: args.number,
        width: terminal::width(),
        style: terminal::style(),
    };
    let next = next::stacks_of(&args.one.path, &args.one.input, args.pattern.as_str());
    output::write(None, |mut out| {
        write(&recording, &found, &options, &mut out)?;
        next.iter().try_for_each(|line| writeln!(out, "\n{line}"))
    })
}
