//! `--hold`: how long locks are held, by probes on glibc's functions; off as soon as it costs the target too much.

mod children;
mod guard;
mod harvest;
mod json;
mod probes;
mod report;

use std::io::{BufWriter, Write, stdout};
use std::time::Duration;

use anyhow::{Result, ensure};
use bpf::lockstat_hold::{LockstatHoldSkel, LockstatHoldSkelBuilder};
use libbpf_rs::skel::Skel;
use trace::closing::Closing;
use trace::cost::{Cost, Meter};
use trace::loader::{self, section};
use trace::privileges;
use trace::probe::Kernel;
use trace::run::{self, Outcome};
use trace::signals::{self, Signals};
use trace::targets::Settings;
use trace::window::{monotonic_ns, nanoseconds};

use crate::args::Args;
use children::{Children, Forked};
use guard::{Guard, Spent, Stopped};
use harvest::Harvest;
use probes::{Method, Probed, Probes};

/// Options that mean nothing to probes: they are in whole processes, and take no stacks.
pub(crate) const NOT_WITH: [&str; 19] = [
    "now",
    "interval",
    "command",
    "tids",
    "comm",
    "cgroup",
    "user_threads",
    "kernel_threads",
    "kernel",
    "user",
    "class",
    "stacks",
    "folded",
    "waker",
    "delimited",
    "annotate",
    "output",
    "unwind",
    "max_overhead",
];

/// What is loaded; measuring decides which five probes are attached.
pub(crate) const PROGRAMS: [(&str, bool); 12] = [
    ("lock_entered", true),
    ("lock_returned", true),
    ("unlock_entered", true),
    ("wait_entered", true),
    ("wait_returned", true),
    ("lock_entered_multi", true),
    ("lock_returned_multi", true),
    ("unlock_entered_multi", true),
    ("wait_entered_multi", true),
    ("wait_returned_multi", true),
    ("target_forks", true),
    ("nothing_multi", true),
];

/// Between two looks of the guard.
const STEP: Duration = Duration::from_millis(50);

/// What the probes cost, measured.
pub(crate) struct Price {
    /// One trap, ns.
    pub(crate) trap_ns: u64,
    /// From the first probe to the last, before and behind the window too.
    pub(crate) traps: u64,
    /// CPU time of the targets meanwhile, ns, and wall time.
    pub(crate) target_cpu_ns: u64,
    pub(crate) probed_ns: u64,
    pub(crate) window_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) stopped: Option<Stopped>,
    pub(crate) forked: Forked,
    /// Taking the probes away took so long, ns.
    pub(crate) detached_in_ns: u64,
}

/// Whether the kernel has what probes take.
pub(crate) fn check(kernel: &Kernel) -> Result<()> {
    ensure!(
        kernel.enumerator("BPF_FUNC_get_attach_cookie").is_some(),
        "--hold: this kernel has no cookies for uprobes, which came with Linux 5.15"
    );
    Ok(())
}

pub(crate) fn run(args: &Args, targets: &Settings) -> Result<Outcome> {
    check(&Kernel::probe()?)?;
    let signals = Signals::install()?;
    let meter = Meter::start();
    let libraries = probes::find(&targets.tgids)?;
    let mut skel = load(targets)?;
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    let trap = measure(&mut skel)?;
    let price = probe(args, &mut skel, &signals, &libraries, trap)?;
    let harvest = Harvest::gather(&skel, &targets.tgids, price.end_ns, args.symbolizer()?)?;
    let cost = meter.read(skel.object());
    let written = write(args, &harvest, &price, &cost);
    run::unless_closed(written, ())?;
    Ok(close(args, &harvest, &price, &cost))
}

fn load(targets: &Settings) -> Result<LockstatHoldSkel<'static>> {
    loader::load(LockstatHoldSkelBuilder::default(), &PROGRAMS, |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        rodata.targets = bpf::target_config!(bpf::lockstat_hold::types, targets);
        Ok(())
    })
}

/// Opens or closes the window: its start and, if it has one, its end, ns.
fn count(skel: &mut LockstatHoldSkel<'_>, window: Option<(u64, u64)>) -> Result<()> {
    let bss = section(skel.maps.bss_data.as_deref_mut(), ".bss")?;
    (bss.window_start_ns, bss.window_end_ns) = window.unwrap_or_default();
    Ok(())
}

/// On ourselves, with a window that is open: how probes are put in place, and what a trap costs, ns.
fn measure(skel: &mut LockstatHoldSkel<'_>) -> Result<(Method, u64)> {
    count(skel, Some((1, 0)))?;
    let measured = probes::measure(skel)?;
    count(skel, None)?;
    Ok(measured)
}

/// Puts the probes in place, and takes them away when it is time.
fn probe(
    args: &Args,
    skel: &mut LockstatHoldSkel<'_>,
    signals: &Signals,
    libraries: &[Probed],
    (method, trap_ns): (Method, u64),
) -> Result<Price> {
    let (before, probed_from_ns) = (probes::hits(skel)?, monotonic_ns());
    let mut spent = Spent::since_now(&args.targets.pids);
    let mut children = Children::since_now(skel, libraries, method)?;
    let probes = Probes::attach(skel, libraries, method)?;
    privileges::keep_for_tracing("lockstat", &[]);
    let start_ns = monotonic_ns();
    count(skel, Some((start_ns, 0)))?;
    say_begun(args, &probes, trap_ns);
    if args.common.verbose {
        trace::say!("lockstat: probes put in place {}", method.describe());
    }
    let times = (start_ns, trap_ns);
    let (end_ns, stopped) = watch(args, skel, signals, times, (&mut spent, &mut children))?;
    count(skel, Some((start_ns, end_ns)))?;
    drop(probes);
    let detached_in_ns = monotonic_ns() - end_ns;
    if let Some(stopped) = &stopped
        && !args.common.quiet
    {
        trace::say!("lockstat: {}", stopped.describe(args.hold_limit));
    }
    spent.look();
    Ok(Price {
        trap_ns,
        traps: probes::hits(skel)? - before,
        target_cpu_ns: spent.ns(),
        probed_ns: monotonic_ns() - probed_from_ns,
        window_ns: end_ns - start_ns,
        end_ns,
        stopped,
        forked: children.end(skel)?,
        detached_in_ns,
    })
}

fn say_begun(args: &Args, probes: &Probes, trap_ns: u64) {
    if args.common.quiet {
        return;
    }
    trace::say!(
        "lockstat: tracing holds {}; {} probes at {:.1} us a hit, taken away above {}% of the target's CPU time",
        args.window.describe(),
        probes.len(),
        trap_ns as f64 / 1e3,
        args.hold_limit
    );
}

/// Until time is up, a signal comes, the targets are gone or the guard says no. When that was, and what the guard said.
fn watch(
    args: &Args,
    skel: &LockstatHoldSkel<'_>,
    signals: &Signals,
    (start_ns, trap_ns): (u64, u64),
    (spent, children): (&mut Spent, &mut Children<'_>),
) -> Result<(u64, Option<Stopped>)> {
    let deadline_ns = args
        .window
        .duration
        .map(|duration| start_ns + nanoseconds(duration));
    let before = probes::hits(skel)?;
    spent.look();
    let spent_before_ns = spent.ns();
    let mut guard = Guard::new(args.hold_limit, trap_ns);
    let mut stopped = None;
    let mut now_ns = start_ns;
    while !signals.ended() && stopped.is_none() {
        let left = deadline_ns.map_or(u64::MAX, |deadline| deadline.saturating_sub(now_ns));
        if left == 0 {
            break;
        }
        signals::wait(&[signals.fd()], STEP.min(Duration::from_nanos(left)));
        children.look(skel)?;
        now_ns = monotonic_ns();
        let traps = probes::hits(skel)? - before;
        if !spent.look() {
            break;
        }
        let spent_ns = spent.ns() - spent_before_ns;
        stopped = guard.observe(now_ns - start_ns, traps, spent_ns);
    }
    Ok((now_ns, stopped))
}

/// The closing line; the exit status that the run deserves.
fn close(args: &Args, harvest: &Harvest, price: &Price, cost: &Cost) -> Outcome {
    let closing = Closing {
        tool: "lockstat",
        window: Duration::from_nanos(price.window_ns),
        events: (price.traps, "traps"),
        stacks: None,
        ends: None,
        losses: &harvest.losses,
        losses_of_ns: 0,
        cost,
    };
    closing.print(args.common.quiet);
    if args.common.strict && price.stopped.is_some() {
        return Outcome::Lossy;
    }
    closing.outcome(args.common.strict)
}

fn write(args: &Args, harvest: &Harvest, price: &Price, cost: &Cost) -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    if args.common.json {
        writeln!(out, "{}", json::object(harvest, price, cost))?;
    } else {
        report::write(args, harvest, price, &mut out)?;
    }
    out.flush()?;
    Ok(())
}
