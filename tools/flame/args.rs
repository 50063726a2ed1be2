//! Commands of flame.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{convert, diff, draw, filter, gate, heat, merge, peek, top};

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

#[derive(Parser)]
#[command(
    name = "flame",
    version,
    about = "Read, draw, compare, merge and gate profiles",
    after_help = EXAMPLES,
    max_term_width = 80,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Print the script that completes options in SHELL
    #[arg(long, value_name = "SHELL")]
    completions: Option<Shell>,
}

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

impl Args {
    /// Does what was asked for.
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(shell) = self.completions {
            // Not to stdout at once: it panics where that fails.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Self::command(), "flame", &mut script);
            io::stdout().write_all(&script).context("write to stdout")?;
            return Ok(ExitCode::SUCCESS);
        }
        let Some(command) = self.command else {
            Self::command()
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
}
