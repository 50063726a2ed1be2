//! flame top.

use anyhow::Result;
use profile::ask::top::{By, TableOptions, first, write};

use crate::input::One;
use crate::{next, output, terminal};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    one: One,

    /// What to list: function, line, module, comm, thread, or a label such as reason
    #[arg(long, value_name = "WHAT", default_value = "function", value_parser = by)]
    by: By,

    /// Same as --by line
    #[arg(long, conflicts_with = "by")]
    lines: bool,

    /// Rows to print
    #[arg(short, long, value_name = "ROWS", default_value_t = 20)]
    number: usize,

    /// Largest total first, instead of self
    #[arg(long)]
    cumulative: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a Result")]
fn by(text: &str) -> Result<By, String> {
    Ok(match text {
        "function" => By::Function,
        "line" => By::Line,
        "module" => By::Module,
        "comm" => By::Comm,
        "thread" => By::Thread,
        label => By::Label(label.strip_prefix("label:").unwrap_or(label).to_owned()),
    })
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let recording = args.one.read()?;
    if let By::Label(label) = &args.by {
        args.one.ensure_label(&recording, label)?;
    }
    let by = if args.lines { &By::Line } else { &args.by };
    let options = TableOptions {
        rows: args.number,
        width: terminal::width(),
        style: terminal::style(),
        by_total: args.cumulative,
    };
    let next = match by {
        By::Function => first(&recording, by, args.cumulative)
            .and_then(|function| next::peek(&args.one.path, &args.one.input, &function)),
        _ => None,
    };
    output::write(None, |mut out| {
        write(&recording, by, &options, &mut out)?;
        next.iter().try_for_each(|line| writeln!(out, "\n{line}"))
    })
}
