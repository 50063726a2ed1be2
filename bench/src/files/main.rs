//! usekit-bench-files: how fast flame reads and draws, beside inferno, flamegraph.pl and Go's pprof, on the same files.

#![allow(clippy::print_stderr, reason = "for who runs it")]

mod check;
mod generate;
mod measure;
mod report;
mod tasks;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

/// Measure flame and others on the same files; their results are compared too.
#[derive(Parser)]
#[command(version, max_term_width = 80)]
struct Args {
    /// Size of the generated files, MB
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=4000))]
    megabytes: u64,

    /// How often each program is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Measure this task only (repeatable): draw, collapse, pprof, merge
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Text of perf script to use as the real capture [default: one is made]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// Where flame is
    #[arg(long, value_name = "DIR", default_value = "target/release")]
    ours_dir: PathBuf,

    /// Where inferno is (setup/inferno)
    #[arg(long, value_name = "DIR", default_value = "target/bench-tools/bin")]
    inferno_dir: PathBuf,

    /// Where files are made; they are removed again
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Where the tables go
    #[arg(long, value_name = "FILE", default_value = "bench/files.md")]
    output: PathBuf,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first == measure::MEASURE)
    {
        return measure::measure_one(&arguments[1..]);
    }
    let args = Args::parse();
    let scratch = match &args.scratch {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let scratch = scratch.context("make a directory for files")?;
    let inputs = tasks::Inputs::make(&args, scratch.path())?;
    let mut text = report::header(&args);
    for task in tasks::all(&args, &inputs)? {
        writeln!(io::stderr(), "{}", task.title)?;
        let measured = task.run(args.rounds)?;
        text += &report::table(&task, &measured);
    }
    io::stdout().write_all(text.as_bytes())?;
    fs::write(&args.output, text).with_context(|| format!("write {}", args.output.display()))
}
