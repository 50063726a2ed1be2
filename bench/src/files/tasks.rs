//! What is measured: files, and the programs that do the same with them.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::measure::{Run, run};
use crate::{Args, check, generate};

/// Debian's copy, in libdevel-nytprof-perl.
const FLAMEGRAPH: &str = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl";

/// Compares what flame wrote with what another wrote.
type Check = fn(&Path, &Path) -> Result<String>;

/// One program's way to do it.
pub(crate) struct Side {
    pub(crate) name: String,
    command: Vec<String>,
    output: PathBuf,
    check: Check,
    /// How its output compares with ours, once it is known.
    pub(crate) verdict: RefCell<String>,
}

/// Programs that do the same; ours is the first.
pub(crate) struct Task {
    pub(crate) title: String,
    pub(crate) sides: Vec<Side>,
}

impl Task {
    /// Runs all in turns, as often as is asked for, and compares what they wrote.
    pub(crate) fn run(&self, rounds: u32) -> Result<Vec<Vec<Run>>> {
        let mut runs = vec![Vec::new(); self.sides.len()];
        for round in 0..rounds as usize {
            for turn in 0..self.sides.len() {
                // Who comes first changes.
                let at = (turn + round) % self.sides.len();
                let side = &self.sides[at];
                runs[at].push(run(&side.command, &side.output)?);
            }
        }
        let ours = &self.sides[0].output;
        for side in &self.sides[1..] {
            let verdict = (side.check)(ours, &side.output);
            *side.verdict.borrow_mut() = verdict.with_context(|| side.name.clone())?;
        }
        Ok(runs)
    }
}

/// Files to read.
pub(crate) struct Inputs {
    dir: PathBuf,
    folded: PathBuf,
    /// Text of perf script: generated, and of a real program where perf could record one.
    perf: Vec<(&'static str, PathBuf)>,
    pprof: PathBuf,
}

impl Inputs {
    pub(crate) fn make(args: &Args, dir: &Path) -> Result<Self> {
        let bytes = args.megabytes * 1_000_000;
        let path = |name: &str| dir.join(name);
        generate::folded(&path("in.folded"), bytes).context("write folded lines")?;
        generate::perf(&path("in.perf.txt"), bytes).context("write events")?;
        let mut perf = vec![("generated", path("in.perf.txt"))];
        match &args.capture {
            Some(file) => perf.push(("real capture", file.clone())),
            None => match record(dir) {
                Ok(file) => perf.push(("real capture", file)),
                Err(err) => eprintln!("SKIPPED: no real capture: {err:#}"),
            },
        }
        let inputs = Self {
            dir: dir.to_owned(),
            folded: path("in.folded"),
            perf,
            pprof: path("in.pb.gz"),
        };
        let flame = args.ours_dir.join("flame");
        let status = Command::new(&flame)
            .arg("convert")
            .args([&inputs.folded, &inputs.pprof])
            .status();
        let status = status.with_context(|| format!("start {}", flame.display()))?;
        ensure!(status.success(), "flame convert: {status}");
        Ok(inputs)
    }
}

/// Python compiling its own library, sampled: deep stacks of a real program.
fn record(dir: &Path) -> Result<PathBuf> {
    let data = dir.join("perf.data").display().to_string();
    let out = dir.join("cache").display().to_string();
    let line = "cd /usr/lib/python3* && exec perf record -q -F 9999 -e cpu-clock --call-graph fp -o \"$0\" -- \
                env PYTHONPYCACHEPREFIX=\"$1\" python3 -m compileall -q -f .";
    let status = Command::new("sh")
        .args(["-c", line, &data, &out])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()?;
    let text = Command::new("perf")
        // Without periods: inferno would add those up, flame counts events.
        .args(["script", "-F", "comm,pid,tid,time,event,ip,sym,symoff,dso"])
        .args(["-i", &data])
        .output()?;
    if text.stdout.is_empty() {
        bail!(
            "perf record: {status}: {}",
            String::from_utf8_lossy(&text.stderr).trim()
        );
    }
    let path = dir.join("real.perf.txt");
    fs::write(&path, text.stdout)?;
    Ok(path)
}

/// Every task that was asked for.
pub(crate) fn all(args: &Args, inputs: &Inputs) -> Result<Vec<Task>> {
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut tasks = Vec::new();
    if wanted("draw") {
        tasks.push(draw(args, inputs)?);
    }
    if wanted("collapse") {
        for (what, file) in &inputs.perf {
            tasks.push(collapse(args, inputs, what, file)?);
        }
    }
    if wanted("pprof") {
        tasks.push(pprof(args, inputs)?);
    }
    if wanted("merge") {
        tasks.push(merge(args, inputs)?);
    }
    ensure!(!tasks.is_empty(), "no such task");
    Ok(tasks)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A program with its arguments; the file to read is the last one.
fn side(
    inputs: &Inputs,
    name: &str,
    program: &Path,
    args: &[&str],
    file: &Path,
    check: Check,
) -> Side {
    let mut command = vec![shown(program)];
    command.extend(args.iter().map(|arg| (*arg).to_owned()));
    command.push(shown(file));
    Side {
        name: name.to_owned(),
        command,
        output: inputs
            .dir
            .join(format!("out.{}", name.replace([' ', '/'], "-"))),
        check,
        verdict: RefCell::default(),
    }
}

fn task(what: &str, file: &Path, sides: Vec<Side>) -> Result<Task> {
    let bytes = fs::metadata(file).with_context(|| shown(file))?.len();
    Ok(Task {
        title: format!("{what}, {:.0} MB", bytes as f64 / 1e6),
        sides,
    })
}

fn draw(args: &Args, inputs: &Inputs) -> Result<Task> {
    let file = &inputs.folded;
    let flame = args.ours_dir.join("flame");
    let inferno = args.inferno_dir.join("inferno-flamegraph");
    let perl = Path::new("perl");
    let sides = vec![
        side(
            inputs,
            "flame draw",
            &flame,
            &["draw"],
            file,
            check::pictures,
        ),
        // The same boxes are left out: those below a tenth of a pixel of 1,200.
        side(
            inputs,
            "inferno-flamegraph",
            &inferno,
            &["--minwidth", "0.00833"],
            file,
            check::pictures,
        ),
        side(
            inputs,
            "flamegraph.pl",
            perl,
            &[FLAMEGRAPH],
            file,
            check::pictures,
        ),
    ];
    task("Folded lines to SVG, generated", file, sides)
}

fn collapse(args: &Args, inputs: &Inputs, what: &str, file: &Path) -> Result<Task> {
    let flame = args.ours_dir.join("flame");
    let inferno = args.inferno_dir.join("inferno-collapse-perf");
    let sides = vec![
        side(
            inputs,
            "flame merge",
            &flame,
            &["merge"],
            file,
            check::folded,
        ),
        side(
            inputs,
            "inferno-collapse-perf",
            &inferno,
            &[],
            file,
            check::folded,
        ),
        side(
            inputs,
            "inferno-collapse-perf, 1 thread",
            &inferno,
            &["-n", "1"],
            file,
            check::folded,
        ),
    ];
    task(
        &format!("Text of perf script to folded lines, {what}"),
        file,
        sides,
    )
}

fn pprof(args: &Args, inputs: &Inputs) -> Result<Task> {
    let file = &inputs.pprof;
    let flame = args.ours_dir.join("flame");
    let go = Path::new("go");
    let top = ["tool", "pprof", "-top", "-nodecount=1"];
    let sides = vec![
        side(inputs, "flame top", &flame, &["top"], file, check::leaders),
        side(inputs, "go tool pprof -top", go, &top, file, check::leaders),
    ];
    task(
        "pprof to a table of functions (20,000 stacks, compressed)",
        file,
        sides,
    )
}

/// What grows with the length of a file and what does not: the same stacks, four times as often.
fn merge(args: &Args, inputs: &Inputs) -> Result<Task> {
    let long = inputs.dir.join("long.folded");
    generate::folded(&long, args.megabytes * 4_000_000).context("write folded lines")?;
    let flame = args.ours_dir.join("flame");
    let always: Check = |_, _| Ok(String::new());
    let sides = vec![
        side(inputs, "flame merge", &flame, &["merge"], &long, always),
        side(inputs, "flame draw again", &flame, &["draw"], &long, always),
        side(
            inputs,
            "flame merge, a quarter of it",
            &flame,
            &["merge"],
            &inputs.folded,
            always,
        ),
    ];
    task(
        "Memory by length: folded lines of the same stacks, four times as many",
        &long,
        sides,
    )
}
