//! `--now`: who waits for whom at this instant, without tracing anything.

mod claim;
mod files;
mod futex;
mod graph;
mod java;
mod json;
mod judged;
mod lock;
mod names;
mod next;
mod python;
mod report;
mod servers;
mod shared;
mod snapshot;
mod thread;
mod told;
mod turns;
mod verdict;
mod waits;
mod walks;
mod words;

use std::io::{BufWriter, Write, stdout};

use anyhow::Result;
use budget::cost::Cost;
use budget::meter::Meter;
use host::privileges::{self, Capabilities};
use libbpf_rs::skel::Skel;
use session::Options;
use session::next::is_there;
use session::outcome::Outcome;
use session::probe::{self, Kernel};
use session::program;
use session::requirements;
use symbols::Symbolizer;

use crate::lockstat::args::Args;
use crate::lockstat::futex::Rules;
use crate::lockstat::table::SHOWN;
use verdict::Verdict;

/// What is loaded.
const PROGRAMS: [(&str, bool); 3] = [
    ("look", true),
    ("unwind_fork", false),
    ("unwind_exec", false),
];

/// Looks, reports, and is done: exit status 0 whatever was found.
pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let targets = args.resolve()?;
    requirements::check()?;
    if args.common.probe {
        return probe::print(Args::NAME, &Kernel::probe()?, &[], &PROGRAMS);
    }
    if !args.common.quiet {
        privileges::say_unseen(Args::NAME);
    }
    let mut symbolizer = Symbolizer::new(symbols::Options {
        inline: !args.no_inline,
        ..symbols::Options::default()
    })?;
    symbolizer.name_callers_of(Rules::ours().callees());
    let meter = Meter::start();
    let skel = snapshot::load(&targets)?;
    privileges::keep_for_tracing(Args::NAME, Capabilities::empty());
    let snapshot = turns::take(&skel, symbolizer, args.unwind, args.query)?;
    let verdict = Verdict::of(&snapshot);
    let cost = Cost::read(&meter, [skel.object()], None);
    let written = write(args, &snapshot, &verdict, &cost);
    program::unless_closed(written, ())?;
    let losses = &snapshot.losses;
    if !args.common.quiet || !losses.is_empty() {
        profile::say!("lockstat: {}; {}", losses.describe(0), cost.brief());
    }
    if let Some(glob) = targets.comm.as_ref().filter(|_| !args.common.quiet)
        && !snapshot.threads.all.iter().any(|thread| thread.wanted)
    {
        profile::say!("lockstat: {}", session::names::no_match(glob));
    }
    if args.common.verbose {
        profile::say!("lockstat: {}", cost.describe());
        profile::say!("lockstat: {}", snapshot.unnamed);
    }
    if args.common.strict && !losses.is_empty() {
        return Ok(Outcome::Lossy);
    }
    Ok(Outcome::Done)
}

fn write(args: &Args, snapshot: &snapshot::Snapshot, verdict: &Verdict, cost: &Cost) -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    if args.common.json {
        let object = json::object(snapshot, verdict, cost);
        writeln!(out, "{object}")?;
    } else {
        let style = report::Options {
            top: args.top.unwrap_or(SHOWN),
            stacks: args.stacks > 0,
            color: args.common.uses_color(),
        };
        report::write(snapshot, verdict, &style, &mut out)?;
        let next = next::next(&args.targets, snapshot, verdict, is_there);
        writeln!(out, "\n{next}\n")?;
    }
    out.flush()?;
    Ok(())
}
