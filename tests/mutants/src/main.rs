//! Breaks the accounting, one small mistake at a time, and says which tests notice.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;

use judge::{Judge, Verdict};
use ledger::{Entry, Ledger};
use mutation::Mutation;
use programs::Programs;
use tree::Tree;

#[path = "../../../bpf/clang.rs"]
mod clang;
mod draw;
mod judge;
mod ledger;
mod mutation;
mod objects;
mod programs;
#[path = "../../../bpf/sources.rs"]
mod sources;
mod tree;

/// What of the mutants the tests must kill.
const LEAST_KILLED: f64 = 0.9;

/// Breaks the accounting, one small mistake at a time, and says which tests notice
#[derive(Parser)]
struct Args {
    /// Which mutants are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many, of those that compile to something else
    #[arg(long, default_value_t = 200)]
    count: usize,

    /// Only of this file or directory, such as bpf/include/histogram.bpf.h; may be repeated
    #[arg(long, value_name = "PATH")]
    only: Vec<PathBuf>,

    /// Only the tests that need no kernel: replays and unit tests
    #[arg(long)]
    no_live: bool,

    /// Only the tests of the mutated crate itself for Rust: a minute each, where those of what uses it take many
    #[arg(long)]
    own: bool,

    /// Print the mutants, in the order in which they are tried, and try none
    #[arg(long)]
    list: bool,

    /// Where the copy, its builds and the ledger are
    #[arg(long, default_value = "target")]
    target: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;
    let mut files = draw::files(&root)?;
    if !args.only.is_empty() {
        files.retain(|file| args.only.iter().any(|only| file.starts_with(only)));
    }
    let order = draw::order(&root, &files, args.seed)?;
    if args.list {
        return list(&root, &order);
    }
    fs::create_dir_all(args.target.join("mutants"))?;
    let target = fs::canonicalize(&args.target)?;
    let tree = Tree::copy(&root, target.join("mutants/tree"))?;
    let programs = Programs::new(target.join("mutants/build"));
    let mut judge = Judge::new(tree, programs, !args.no_live, args.own)?;
    let mut ledger = Ledger::open(&target.join("mutants.jsonl"))?;
    let mut left = order.into_iter();
    while ledger.len() < args.count {
        let mut batch: Vec<Mutation> = left.by_ref().take(args.count - ledger.len()).collect();
        if batch.is_empty() {
            break;
        }
        // Neighbours share builds, and C needs none at first.
        batch.sort_by_key(|it| (!it.is_c(), it.file.clone(), it.at.start));
        for mutation in batch {
            let entry = entry(&args, &root, &mutation, &mut judge)?;
            ledger.add(entry)?;
        }
    }
    io::stdout().write_all(ledger.summary().as_bytes())?;
    Ok(if ledger.is_enough(LEAST_KILLED) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn entry(args: &Args, root: &Path, mutation: &Mutation, judge: &mut Judge) -> Result<Entry> {
    let text = fs::read_to_string(root.join(&mutation.file))?;
    let began = Instant::now();
    let file = mutation.file.display().to_string();
    let line = mutation.line(&text);
    let verdict: Verdict = judge
        .judge(mutation)
        .with_context(|| format!("{file}:{line}"))?;
    Ok(Entry {
        seed: args.seed,
        file,
        line,
        kind: mutation.kind,
        diff: ledger::diff(mutation, &text),
        verdict,
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn list(root: &Path, order: &[Mutation]) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    for mutation in order {
        let text = fs::read_to_string(root.join(&mutation.file))?;
        let file = mutation.file.display();
        let (line, kind) = (mutation.line(&text), mutation.kind);
        write!(
            out,
            "{file}:{line} {kind:?}\n{}",
            ledger::diff(mutation, &text)
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
