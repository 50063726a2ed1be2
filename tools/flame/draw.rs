//! flame draw.

use anyhow::{Result, bail};
use clap::ValueEnum;
use profile::draw::{self, View};
use profile::folded::Idle;
use profile::write::Format;

use crate::input::One;
use crate::output::{self, Target, target};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    one: One,

    /// File to write, .svg or .html; without: SVG on stdout
    #[arg(short, long, value_name = "FILE", value_parser = target)]
    output: Option<Target>,

    /// Root at the top, stacks grow downwards
    #[arg(long)]
    icicle: bool,

    /// From the leaves: functions that ran or waited, on them their callers
    #[arg(long)]
    inverted: bool,

    /// Reasons of waits as boxes above the thread's
    #[arg(long)]
    reason: bool,

    /// Waits of threads with nothing to do
    #[arg(long, value_name = "HOW", default_value = "fold")]
    idle: IdleChoice,

    /// Title, instead of one made from the input
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    title: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum IdleChoice {
    /// Under one box
    Fold,
    /// Like all others
    Show,
    /// Nothing else
    Only,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = args.output.as_ref().map(|target| &*target.path);
    output::refuse_terminal(path, "a picture")?;
    let format = args
        .output
        .as_ref()
        .map_or(Format::Svg, |target| target.format);
    if !matches!(format, Format::Svg | Format::Html) {
        bail!("draw writes .svg and .html; for other formats see flame convert");
    }
    let recording = args.one.read()?;
    let view = View {
        title: args.title.clone(),
        icicle: args.icicle,
        inverted: args.inverted,
        reason: args.reason,
        idle: match args.idle {
            IdleChoice::Fold => Idle::Fold,
            IdleChoice::Show => Idle::Show,
            IdleChoice::Only => Idle::Only,
        },
        ..View::default()
    };
    output::write(path, |mut out| match format {
        Format::Html => draw::html(&recording, &view, &mut out),
        _ => draw::svg(&recording, &view, &mut out),
    })?;
    args.output.iter().for_each(output::say);
    Ok(())
}
