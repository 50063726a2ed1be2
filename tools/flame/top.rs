//! flame top.

use anyhow::Result;
use profile::ask::top::{By, TableOptions, first, first_in, top, write};
use profile::recording::Recording;

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
    let next = next(args, &recording, by);
    output::write(None, |mut out| {
        write(&recording, by, &options, &mut out)?;
        next.iter().try_for_each(|line| writeln!(out, "\n{line}"))
    })
}

/// Callers and callees of the first function, line or module; else a picture of what is first.
fn next(args: &Args, recording: &Recording, by: &By) -> Option<String> {
    let (path, input) = (&args.one.path, &args.one.input);
    let found = first(recording, by, args.cumulative)?;
    let name = &*found.name;
    match by {
        By::Function => next::peek(path, input, name),
        // The function that the line is in; one without a line stands for itself.
        By::Line => {
            let functions = top(recording, &By::Function).entries;
            let is_function = functions.iter().any(|function| function.name == name);
            let function = if is_function { name } else { &found.place };
            next::peek(path, input, function)
        }
        By::Module => {
            let function = first_in(recording, &found, args.cumulative)?;
            next::peek(path, input, &function.name)
        }
        By::Comm => next::part(path, input, &[("comm", name)]),
        By::Thread => {
            let tid = found.place.rsplit(' ').next().filter(|tid| *tid != "0");
            let tags: Vec<_> = tid.map(|tid| ("tid", tid)).into_iter().collect();
            next::part(path, input, &[&[("comm", name)], &*tags].concat())
        }
        By::Label(label) => next::part(path, input, &[(label, name)]),
    }
}
