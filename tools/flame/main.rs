//! flame: reads, draws, compares, merges and gates profiles.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

mod complaint;
mod convert;
mod diff;
mod draw;
mod filter;
mod gate;
mod heat;
mod input;
mod merge;
mod output;
mod peek;
mod top;

/// What a change that exceeds a limit exits with.
const EXCEEDED: u8 = 4;

#[derive(Parser)]
#[command(
    name = "flame",
    version,
    about = "Read, draw, compare, merge and gate profiles",
    after_help = EXAMPLES,
    max_term_width = 80,
    arg_required_else_help = true
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Print the script that completes options in SHELL
    #[arg(long, value_name = "SHELL")]
    completions: Option<Shell>,
}

const EXAMPLES: &str = "\
IN is a file of profile or offcputime (.folded, .json, .pb.gz), any pprof
or folded file, or perf script text; - is stdin; .gz is fine.

Examples:
  flame draw wait.json -o wait.html       # a page to look at and to send
  flame draw out.folded --icicle -o x.svg
  flame top cpu.pb.gz --by module
  flame peek cpu.folded 'memcpy|memset'
  flame gate before.json after.json --max-growth 3pp
  flame merge a.folded b.folded -o all.pb.gz
  flame heat cpu.perf.txt -o heat.svg

What a change of a program changed:
  profile -p 123 30 -o before.json
  profile -p 123 30 -o after.json   # the new version, under the same load
  flame diff before.json after.json -o change.html";

#[derive(Subcommand)]
enum Command {
    /// Draw a flame graph, as SVG or as a page
    Draw(draw::Args),
    /// Say what grew and what shrank between two profiles
    Diff(diff::Args),
    /// List what weighs most
    Top(top::Args),
    /// Show callers and callees of functions
    Peek(peek::Args),
    /// Keep only some of the stacks
    Filter(filter::Args),
    /// Add profiles up
    Merge(merge::Args),
    /// Write a profile in another format
    Convert(convert::Args),
    /// Draw when samples were taken, second by second
    Heat(heat::Args),
    /// Fail when a profile grew: for CI
    Gate(gate::Args),
}

/// The question that it answers.
pub const QUESTION: &str = "What does a profile say, what changed, and did it get worse?";

/// The tool, told by its command line, the first word of which is its name.
pub fn main(line: &[OsString]) -> ExitCode {
    match run(Args::parse_from(line)) {
        Ok(status) => status,
        // head has read enough.
        Err(err) if is_closed_pipe(&err) => ExitCode::SUCCESS,
        Err(err) => {
            profile::say!("flame: {}", complaint::line(&err));
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<ExitCode> {
    if let Some(shell) = args.completions {
        // Not to stdout at once: it panics where that fails.
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "flame", &mut script);
        io::stdout().write_all(&script).context("write to stdout")?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(command) = args.command else {
        Args::command()
            .error(ErrorKind::MissingSubcommand, "give a command; see --help")
            .exit();
    };
    match command {
        Command::Draw(args) => draw::run(&args)?,
        Command::Diff(args) => diff::run(&args)?,
        Command::Top(args) => top::run(&args)?,
        Command::Peek(args) => peek::run(&args)?,
        Command::Filter(args) => filter::run(&args)?,
        Command::Merge(args) => merge::run(&args)?,
        Command::Convert(args) => convert::run(&args)?,
        Command::Heat(args) => heat::run(&args)?,
        Command::Gate(args) => return gate::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}

fn is_closed_pipe(err: &anyhow::Error) -> bool {
    let mut causes = err
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Columns for tables: what the shell says, or 100.
fn width() -> usize {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    columns.unwrap_or(100)
}

/// Bold headings on terminals only.
fn style() -> profile::style::Style {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    (!refused && io::stdout().is_terminal()).into()
}
