//! flame merge.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use profile::ask::merge::merge;
use profile::write::write_recording;

use crate::input::Input;
use crate::output::{self, Target, target};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Profiles to add up
    #[arg(value_name = "IN", required = true)]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    input: Input,

    /// File to write; without: folded on stdout
    #[arg(short, long, value_name = "FILE", value_parser = target)]
    output: Option<Target>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let format = output::format(args.output.as_ref());
    let read = |path: &PathBuf| args.input.read_for(path, Some(format));
    let recordings = args.paths.iter().map(read);
    let sum = merge(recordings.collect::<Result<_>>()?).map_err(|err| anyhow!(err))?;
    let path = args.output.as_ref().map(|target| &*target.path);
    output::write(path, |mut out| write_recording(&sum, format, "", &mut out))?;
    args.output.iter().for_each(output::say);
    Ok(())
}
