//! Options that mean the same in every tool, and what follows from them.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::Shell;
use hist::hdr::HdrLog;
use hist::text::Unit;
use stacks::unwind::{Maps, Method};
use symbols::Origin;

use crate::StackSetup;
use crate::output::{Format, OutputFile};

/// How much is said, and how strictly.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Common {
    /// Write JSON, one object a line per report
    #[arg(short, long)]
    pub json: bool,

    /// Print only results, errors and dropped events
    #[arg(short, long)]
    pub quiet: bool,

    /// Show attached hooks and unresolved symbols
    #[arg(short, long)]
    pub verbose: bool,

    /// List kernel features and those that are used, then exit
    #[arg(long)]
    pub probe: bool,

    /// Exit with status 3 if anything was lost
    #[arg(long)]
    pub strict: bool,

    /// Bold headings
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: When,

    /// Print the script that completes options in SHELL
    #[arg(long, value_name = "SHELL", exclusive = true)]
    pub completions: Option<Shell>,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Common {
    /// Whether headings are bold on stdout.
    pub fn uses_color(&self) -> bool {
        match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                !refused && stdout().is_terminal()
            }
        }
    }
}

/// How histograms are written.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Histograms {
    /// Nanoseconds instead of microseconds
    #[arg(short, long, conflicts_with = "milliseconds")]
    pub nanoseconds: bool,

    /// Milliseconds instead of microseconds
    #[arg(short, long)]
    pub milliseconds: bool,

    /// Also write an HdrHistogram log, values in ns
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
}

impl Histograms {
    /// The log, if one was asked for, from now on.
    ///
    /// # Errors
    ///
    /// When it cannot be created.
    pub fn hdr_log(&self) -> Result<Option<HdrLog>> {
        let path = self.hdr.as_deref();
        path.map(|path| HdrLog::create(path, SystemTime::now()))
            .transpose()
    }

    /// Unit of what people read.
    pub fn unit(&self) -> Unit {
        match (self.nanoseconds, self.milliseconds) {
            (true, _) => Unit::Nanoseconds,
            (_, true) => Unit::Milliseconds,
            _ => Unit::Microseconds,
        }
    }
}

/// Which stacks are taken and how they are written.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Stacks")]
pub struct Stacks {
    /// Only user stacks
    #[arg(short = 'U', long, conflicts_with = "kernel_stacks")]
    pub user_stacks: bool,

    /// Only kernel stacks
    #[arg(short = 'K', long)]
    pub kernel_stacks: bool,

    /// How user stacks are walked
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub unwind: Method,

    /// Inlined functions get no frames of their own
    #[arg(long)]
    pub no_inline: bool,

    /// The interpreter's loop, too, below functions of Python
    #[arg(long)]
    pub native: bool,

    /// Folded stacks, the default without -o when stdout is no terminal
    #[arg(short, long, conflicts_with = "json")]
    pub folded: bool,

    /// A '-' frame between user and kernel part
    #[arg(short, long)]
    pub delimited: bool,

    /// Mark kernel, inlined and JIT frames in folded output.
    #[arg(
        short,
        long,
        help = "Mark frames in folded output: _[k] kernel, _[i] inlined, _[j] JIT"
    )]
    pub annotate: bool,

    /// Also write FILE; its ending is the format (repeatable).
    #[arg(
        short,
        long,
        value_name = "FILE",
        help = "Also write FILE; the extension selects the format: .folded .svg .html .json .pb.gz .speedscope.json .perf.txt (repeatable)"
    )]
    pub output: Vec<OutputFile>,
}

impl Stacks {
    /// Stacks as asked for; `tables`: the BPF side's maps of unwind tables, `origin`: the place that kernel stacks are taken at.
    pub fn setup(&self, tables: Maps, origin: Origin) -> StackSetup {
        StackSetup {
            tables,
            method: self.unwind,
            inline: !self.no_inline,
            native: self.native,
            origin,
        }
    }

    /// The format of stdout; `None` where files were asked for and nobody reads along.
    pub fn format(&self, common: &Common) -> Option<Format> {
        match (self.folded, common.json) {
            (true, _) => Some(Format::Folded),
            (_, true) => Some(Format::Json),
            _ if stdout().is_terminal() => Some(Format::Human),
            _ => self.output.is_empty().then_some(Format::Folded),
        }
    }
}

/// Width of the terminal behind stdout, 80 where there is none.
pub fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(stdout()).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns >= 40)
        .unwrap_or(80)
}
