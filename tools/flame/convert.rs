//! flame convert.

use anyhow::Result;
use profile::write::write_recording;

use crate::input::One;
use crate::output::{self, Target, target};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    one: One,

    /// File to write; its ending is the format
    #[arg(value_name = "OUT", value_parser = target)]
    output: Target,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let target = &args.output;
    let recording = args.one.read_for(target.format)?;
    output::write(Some(&target.path), |mut out| {
        write_recording(&recording, target.format, "", &mut out)
    })?;
    output::say(target);
    Ok(())
}
